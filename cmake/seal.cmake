# Microsoft SEAL: the system's, or the pinned source that the sdist of another package carries.
#
# The build is cached under the user's cache folder (SHIELDFL_CACHE_DIR to move it), so that a fresh build
# folder or a fresh clone is quick. Static, position-independent, without its optional dependencies: shieldfl
# uses neither SEAL's compression nor its deserialisation.

set(SHIELDFL_SEAL_SDIST "pyfhel-3.5.0.tar.gz")
set(SHIELDFL_SEAL_SHA256 "0375b83b5a83026924f59db25c4efa9f27e1e8a66d004658f4d24195986a04b6")
set(SHIELDFL_SEAL_VERSION "4.1.2")
set(SHIELDFL_SEAL_SUBFOLDER "pyfhel-3.5.0/Pyfhel/backend/SEAL")

function(shieldfl_run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed (${result}):\n${output}")
  endif()
endfunction()

# Downloads, checks, unpacks, builds and installs SEAL into `prefix`, which must not exist yet.
function(shieldfl_build_seal cache prefix)
  file(MAKE_DIRECTORY "${cache}")
  set(archive "${cache}/${SHIELDFL_SEAL_SDIST}")
  if(EXISTS "${archive}")
    file(SHA256 "${archive}" found)
    if(NOT found STREQUAL SHIELDFL_SEAL_SHA256)
      file(REMOVE "${archive}")
    endif()
  endif()
  if(NOT EXISTS "${archive}")
    message(STATUS "SEAL: downloading its source (${SHIELDFL_SEAL_SDIST})")
    shieldfl_run("Downloading SEAL's source (without network: install SEAL >= 4.1, or put the archive into ${cache})"
      "${Python_EXECUTABLE}" -P "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/fetch_archive.py"
      Pyfhel "${SHIELDFL_SEAL_SDIST}" "${SHIELDFL_SEAL_SHA256}" "${cache}")
  endif()

  string(RANDOM LENGTH 8 tag)
  set(work "${cache}/build-${tag}")
  message(STATUS "SEAL: building ${SHIELDFL_SEAL_VERSION} once, about a minute on two cores")
  file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${work}")
  shieldfl_run("Configuring SEAL" "${CMAKE_COMMAND}" -S "${work}/${SHIELDFL_SEAL_SUBFOLDER}" -B "${work}/build"
    -G "${CMAKE_GENERATOR}" "-DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}"
    "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}" "-DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}"
    "-DCMAKE_TOOLCHAIN_FILE=${CMAKE_TOOLCHAIN_FILE}"
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON "-DCMAKE_INSTALL_PREFIX=${work}/prefix"
    -DCMAKE_INSTALL_LIBDIR=lib -DSEAL_BUILD_DEPS=OFF -DSEAL_USE_MSGSL=OFF -DSEAL_USE_ZLIB=OFF
    -DSEAL_USE_ZSTD=OFF -DSEAL_USE_INTEL_HEXL=OFF -DBUILD_SHARED_LIBS=OFF)
  shieldfl_run("Building SEAL" "${CMAKE_COMMAND}" --build "${work}/build" --parallel)
  shieldfl_run("Installing SEAL" "${CMAKE_COMMAND}" --install "${work}/build")
  # The rename is atomic: of two builds at once one wins, and no half-built prefix is ever seen.
  file(RENAME "${work}/prefix" "${prefix}" RESULT ignored)
  file(REMOVE_RECURSE "${work}")
endfunction()

find_package(SEAL 4.1 QUIET CONFIG)
if(NOT SEAL_FOUND)
  if(NOT SHIELDFL_CACHE_DIR)
    if(DEFINED ENV{SHIELDFL_CACHE_DIR})
      set(SHIELDFL_CACHE_DIR "$ENV{SHIELDFL_CACHE_DIR}")
    elseif(DEFINED ENV{XDG_CACHE_HOME})
      set(SHIELDFL_CACHE_DIR "$ENV{XDG_CACHE_HOME}/shieldfl")
    else()
      set(SHIELDFL_CACHE_DIR "$ENV{HOME}/.cache/shieldfl")
    endif()
  endif()
  set(compiler "${CMAKE_CXX_COMPILER_ID}-${CMAKE_CXX_COMPILER_VERSION}-${CMAKE_SYSTEM_PROCESSOR}")
  set(prefix "${SHIELDFL_CACHE_DIR}/seal-${SHIELDFL_SEAL_VERSION}-${compiler}")
  if(NOT EXISTS "${prefix}/include")
    shieldfl_build_seal("${SHIELDFL_CACHE_DIR}" "${prefix}")
  endif()
  find_package(SEAL 4.1 REQUIRED CONFIG PATHS "${prefix}" NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
endif()
message(STATUS "SEAL ${SEAL_VERSION}: ${SEAL_DIR}")
