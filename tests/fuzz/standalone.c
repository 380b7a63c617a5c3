/* Runs a fuzz target over files, and over the files of directories, without libFuzzer: the corpus as
 * a plain test. Finding no input is a failure. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz.h"

#include <dirent.h>
#include <sys/stat.h>

static size_t inputs;

static void fail(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s\n", path, what);
    exit(1);
}

static void run_file(const char *path, size_t size)
{
    uint8_t *bytes = malloc(size != 0 ? size : 1);
    FILE *file = fopen(path, "rb");
    if (bytes == NULL || file == NULL || fread(bytes, 1, size, file) != size) {
        fail(path, "cannot be read");
    }
    fclose(file);
    fprintf(stderr, "%s\n", path); /* the last line before an abort names the culprit */
    (void)LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    inputs++;
}

static void run_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        fail(path, "is not there");
    }
    if (!S_ISDIR(st.st_mode)) {
        run_file(path, (size_t)st.st_size);
        return;
    }
    struct dirent **names = NULL;
    const int n = scandir(path, &names, NULL, alphasort);
    if (n < 0) {
        fail(path, "cannot be listed");
    }
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.') {
            char inner[4096];
            if (snprintf(inner, sizeof inner, "%s/%s", path, names[i]->d_name) >=
                (int)sizeof inner) {
                fail(path, "has too long a name in it");
            }
            run_path(inner);
        }
        free(names[i]);
    }
    free(names);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        run_path(argv[i]);
    }
    if (inputs == 0) {
        fail(argc > 1 ? argv[1] : "no path given", "no inputs found");
    }
    printf("%zu inputs, ok\n", inputs);
    return 0;
}
