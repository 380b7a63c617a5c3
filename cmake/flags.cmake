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
# gcc 12's thread sanitizer makes AVX-512 code of the adacomp codec that compares wrongly (clang's does not); the
# loops of one thread have nothing for it to see anyway.
if(GRADWIRE_SANITIZE MATCHES "thread")
  list(APPEND GRADWIRE_FLAGS_avx512 -fno-sanitize=thread)
endif()
set(GRADWIRE_ISAS "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(GRADWIRE_ISAS avx2 avx512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(GRADWIRE_ISAS neon) # part of the architecture: no flags
endif()
