/* `gradwire train` of a build without the trainer. */
#include "options.h"
#include "say.h"
#include "train.h"

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
