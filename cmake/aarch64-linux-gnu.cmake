# A toolchain file: the core for 64-bit ARM, compiled on another machine with Debian's g++-aarch64-linux-gnu. Programs
# are linked statically, so that qemu's emulation of a processor, which CTest then runs them by, needs no ARM libraries.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
find_program(SHIELDFL_QEMU_AARCH64 NAMES qemu-aarch64 qemu-aarch64-static)
if(SHIELDFL_QEMU_AARCH64)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${SHIELDFL_QEMU_AARCH64}")
endif()

# Libraries and headers of Debian's arm64 packages are found by the compiler's architecture. Configurations of packages
# are not told apart by it, so none of this machine's are taken.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
