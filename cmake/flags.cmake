# One interface target carries what every file of ours is compiled with.
add_library(gradwire_flags INTERFACE)
target_compile_options(gradwire_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
  # docs/numerics.md, rule 2: no operation may be fused that the source does not fuse
  -ffp-contract=off
  $<$<BOOL:${GRADWIRE_WERROR}>:-Werror>)
if(GRADWIRE_SANITIZE)
  target_compile_options(gradwire_flags INTERFACE
    -fsanitize=${GRADWIRE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(gradwire_flags INTERFACE -fsanitize=${GRADWIRE_SANITIZE})
endif()

# Files of an instruction set carry its name: <file>_<isa>.c
set(GRADWIRE_FLAGS_avx2 -mavx2 -mf16c)
set(GRADWIRE_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c -mprefer-vector-width=512)
set(GRADWIRE_ISAS "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(GRADWIRE_ISAS avx2 avx512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(GRADWIRE_ISAS neon) # part of the architecture: no flags
endif()
