/* `gradwire train` of a build without the trainer. */
#include "cli/options.h"
#include "cli/say.h"
#include "cli/train/train.h"

int gw_cli_train_on(const gw_cli_engine *engine, int argc, char **argv)
{
    (void)engine;
    (void)argc;
    (void)argv;
    gw_cli_error("train: this gradwire was built without its trainer, which needs CBLAS and zlib: "
                 "install Debian's "
                 "libopenblas-dev and zlib1g-dev, and build again with -DGRADWIRE_BLAS=ON");
    return GW_CLI_FAILED;
}
