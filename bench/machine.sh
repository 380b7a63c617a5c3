# What a figure was measured on; sourced by the others.
machine() {
    printf '%s, %s cores; %s; %s\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" "$(nproc)" \
        "$(mpirun --version | head -1)" "$("$BUILD/cli/gradwire" --version)"
}
