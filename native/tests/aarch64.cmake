# Builds the tests for 64-bit Arm with Debian's cross compiler and runs them in qemu's user mode:
# cmake -DCMAKE_TOOLCHAIN_FILE=native/tests/aarch64.cmake -DFOREDRAFT_NATIVE_TESTS=ON ...
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
