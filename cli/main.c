/* The command `gradwire`: a table of subcommands, and help. */
#include <stdio.h>
#include <string.h>

#include <gradwire/gradwire.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/profile/profile.h"
#include "cli/say.h"
#include "cli/train/train.h"

typedef struct command {
    const char *name, *doc;
    int (*run)(int argc, char **argv);
} command;

int gw_cli_train(int argc, char **argv)
{
    static const gw_cli_engine THREADS = {.name = "threads"};
    return gw_cli_train_on(&THREADS, argc, argv);
}

int gw_cli_profile(int argc, char **argv)
{
    static const gw_cli_engine THREADS = {.name = "threads"};
    return gw_cli_profile_on(&THREADS, argc, argv);
}

static const command COMMANDS[] = {
    {"train", "train a network across a slow link; compare codecs", gw_cli_train},
    {"report", "a page about training runs: what was sent, what it cost, how well it learned",
     gw_cli_report},
    {"codec", "list the codecs and their parameters", gw_cli_codec},
    {"encode", "tensors of a file -> a frame (.gw)", gw_cli_encode},
    {"decode", "a frame -> .npy, .safetensors or .f32", gw_cli_decode},
    {"inspect", "size and damage of codecs on a file's tensors; what is in a frame",
     gw_cli_inspect},
    {"routes", "the ways a tensor can take to the sum over all ranks; one of them step by step",
     gw_cli_routes},
    {"adapt", "a level for every layer of a file of gradients, under one error budget",
     gw_cli_adapt},
    {"bench", "speed of codecs and of exchanges on this machine", gw_cli_bench},
    {"profile", "what codecs and links of this machine take, as a cluster file", gw_cli_profile},
    {"plan", "which tensors of a job to compress, where, along which route", gw_cli_plan},
    {"advise", "should this job compress on this cluster? in words", gw_cli_advise},
    {"simulate", "timelines written out by hand: when does each end?", gw_cli_simulate},
};
enum { N_COMMANDS = sizeof COMMANDS / sizeof COMMANDS[0] };

static void print_help(FILE *to)
{
    (void)fprintf(to, "usage: gradwire COMMAND [options]\n\n"
                      "Gradients in few bytes, between ranks on a slow network.\n\ncommands:\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        (void)fprintf(to, "  %-10s %s\n", COMMANDS[i].name, COMMANDS[i].doc);
    }
    (void)fprintf(to, "  %-10s %s\n", "help", "help COMMAND: options and an example of a command");
    (void)fprintf(to,
                  "\nResults go to stdout, talk to stderr. Exit status: 0 fine, 1 failed,"
                  " 2 misused.\nA file called - is standard input or standard output.\n\noptions:\n"
                  "  --version  the version of gradwire\n"
                  "  --help     this text\n\nexample:\n"
                  "  gradwire train --link 200mbit --latency 1ms --compare dense,natural:bits=8\n"
                  "  gradwire encode -c natural:bits=8 grads.npy -o grads.gw\n");
}

static const command *find_command(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(COMMANDS[i].name, name) == 0) {
            return &COMMANDS[i];
        }
    }
    gw_cli_error("unknown command '%s'", name);
    print_help(stderr);
    return NULL;
}

/* `gradwire help CMD …` is `gradwire CMD … --help`; argv[0] is "help". */
static int help(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return GW_CLI_DONE;
    }
    const command *found = find_command(argv[1]);
    char option[] = "--help";
    for (int i = 0; i + 1 < argc; i++) {
        argv[i] = argv[i + 1];
    }
    argv[argc - 1] = option;
    return found ? found->run(argc, argv) : GW_CLI_MISUSED;
}

static int run(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    if (!word) {
        print_help(stderr);
        return GW_CLI_MISUSED;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_help(stdout);
        return GW_CLI_DONE;
    }
    if (strcmp(word, "--version") == 0) {
        (void)printf("gradwire %s\n", gw_version_string());
        return GW_CLI_DONE;
    }
    if (strcmp(word, "help") == 0) {
        return help(argc - 1, argv + 1);
    }
    if (word[0] == '-') {
        gw_cli_error("unknown option '%s' before a command", word);
        print_help(stderr);
        return GW_CLI_MISUSED;
    }
    const command *found = find_command(word);
    return found ? found->run(argc - 1, argv + 1) : GW_CLI_MISUSED;
}

int main(int argc, char **argv)
{
    int status = run(argc, argv);
    /* A result that did not reach its reader (a full disk) is not a result. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        gw_cli_error("cannot write to stdout");
        return status == GW_CLI_DONE ? GW_CLI_FAILED : status;
    }
    return status;
}
