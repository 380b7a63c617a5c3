#ifndef GW_CLI_BENCH_CODEC_H
#define GW_CLI_BENCH_CODEC_H

/* `gradwire bench codec`, with argv[0] = "codec". */
int gw_cli_bench_codec(int argc, char **argv);

#endif
