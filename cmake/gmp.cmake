# GMP, as the target GMP::gmp: the system's, which every distribution packages. Its functions for secrets are complete
# since 6.1.
set(SHIELDFL_GMP_VERSION 6.1)

find_path(GMP_INCLUDE_DIR gmp.h)
find_library(GMP_LIBRARY gmp)
if(NOT GMP_INCLUDE_DIR OR NOT GMP_LIBRARY)
  message(FATAL_ERROR "GMP is missing: install libgmp-dev (Debian, Ubuntu) or gmp-devel (Fedora)")
endif()

# Where several architectures share a folder of headers, gmp.h includes the one with the version. So the compiler is
# asked, not the text.
file(WRITE "${CMAKE_BINARY_DIR}/gmp_version.c"
     "#include <gmp.h>\nSHIELDFL_GMP __GNU_MP_VERSION.__GNU_MP_VERSION_MINOR.__GNU_MP_VERSION_PATCHLEVEL\n")
execute_process(COMMAND "${CMAKE_C_COMPILER}" -E -P "-I${GMP_INCLUDE_DIR}" "${CMAKE_BINARY_DIR}/gmp_version.c"
                OUTPUT_VARIABLE preprocessed ERROR_QUIET)
if(NOT preprocessed MATCHES "SHIELDFL_GMP ([0-9]+) *\\. *([0-9]+) *\\. *([0-9]+)")
  message(FATAL_ERROR "${GMP_INCLUDE_DIR}/gmp.h tells no version: reinstall libgmp-dev")
endif()
set(GMP_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
if(GMP_VERSION VERSION_LESS SHIELDFL_GMP_VERSION)
  message(FATAL_ERROR "GMP ${GMP_VERSION} is too old: install libgmp-dev ${SHIELDFL_GMP_VERSION} or newer")
endif()

# By its name and folder, not its file, so that a program that is linked statically gets the static one.
get_filename_component(gmp_directory "${GMP_LIBRARY}" DIRECTORY)
add_library(GMP::gmp INTERFACE IMPORTED)
set_target_properties(GMP::gmp PROPERTIES INTERFACE_LINK_LIBRARIES gmp
                                          INTERFACE_LINK_DIRECTORIES "${gmp_directory}"
                                          INTERFACE_INCLUDE_DIRECTORIES "${GMP_INCLUDE_DIR}")
message(STATUS "GMP ${GMP_VERSION}: ${GMP_LIBRARY}")
