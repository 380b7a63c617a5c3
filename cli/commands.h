/* The subcommands. Each gets its own name as argv[0] and returns the exit status: 0 fine, 1 failed,
 * 2 misused. */
#ifndef GW_CLI_COMMANDS_H
#define GW_CLI_COMMANDS_H

int gw_cli_codec(int argc, char **argv);
int gw_cli_encode(int argc, char **argv);
int gw_cli_decode(int argc, char **argv);
int gw_cli_inspect(int argc, char **argv);
int gw_cli_routes(int argc, char **argv);
int gw_cli_report(int argc, char **argv);
int gw_cli_adapt(int argc, char **argv);
int gw_cli_bench(int argc, char **argv);
int gw_cli_train(int argc, char **argv);
int gw_cli_profile(int argc, char **argv);
int gw_cli_plan(int argc, char **argv);
int gw_cli_advise(int argc, char **argv);
int gw_cli_simulate(int argc, char **argv);

#endif
