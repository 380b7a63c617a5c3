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

# Position-independent programs. A static library's functions are nobody else's to replace, so they may be inlined.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
target_compile_options(gradwire_flags INTERFACE -fno-semantic-interposition)

# What makes a fault in our code harder to exploit: tests/house/check_elf.py. In optimised builds, which FORTIFY needs, and
# not under a sanitizer, which replaces the same functions.
set(GRADWIRE_HARDENING "") # src/CMakeLists.txt hands it to CUDA's host compiler too
set(GRADWIRE_HARDENING_LINK "")
if(NOT GRADWIRE_SANITIZE)
  include(CheckCSourceCompiles)
  include(CheckLinkerFlag)
  set(CMAKE_REQUIRED_FLAGS "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_c_source_compiles("#include <stdio.h>
    #if __USE_FORTIFY_LEVEL < 3
    #error the compiler or its C library is too old
    #endif
    int main(void) { return 0; }" GRADWIRE_FORTIFY_3)
  unset(CMAKE_REQUIRED_FLAGS)
  set(GRADWIRE_HARDENING -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$<IF:$<BOOL:${GRADWIRE_FORTIFY_3}>,3,2>)
  check_linker_flag(C "LINKER:-z,relro,-z,now" GRADWIRE_RELRO)
  if(GRADWIRE_RELRO)
    set(GRADWIRE_HARDENING_LINK LINKER:-z,relro,-z,now)
  endif()
  set(optimised $<CONFIG:Release,RelWithDebInfo,MinSizeRel>)
  target_compile_options(gradwire_flags INTERFACE "$<${optimised}:${GRADWIRE_HARDENING}>")
  target_link_options(gradwire_flags INTERFACE "$<${optimised}:${GRADWIRE_HARDENING_LINK}>")
endif()

# What is installed has the same RUNPATH in the build tree. One that CMake changes when it installs ends, until then, with
# an empty entry, which is the current directory. Set in the folders whose targets are installed, and these link each other
# by $ORIGIN or statically.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# Files of an instruction set carry its name: <file>_<isa>.c
set(GRADWIRE_FLAGS_avx2 -mavx2 -mf16c)
set(GRADWIRE_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c -mprefer-vector-width=512)
set(GRADWIRE_ISAS "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(GRADWIRE_ISAS avx2 avx512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(GRADWIRE_ISAS neon) # part of the architecture: no flags
endif()
