# Kernels for one instruction set are in files of their own, named *_neon.cpp, *_avx2.cpp and *_avx512.cpp, and these
# alone are compiled with its flags: everything else runs on any processor of the architecture.
set(SHIELDFL_INSTRUCTION_SETS scalar)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND SHIELDFL_INSTRUCTION_SETS avx2 avx512)
  set(avx2_flags -mavx2 -mfma -mbmi -mbmi2 -mpopcnt -mpclmul -msse4.2)
  set(avx512_flags ${avx2_flags} -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx512ifma -mavx512vbmi -mavx512vbmi2
                   -mavx512vpopcntdq -mprefer-vector-width=512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  list(APPEND SHIELDFL_INSTRUCTION_SETS neon)
  set(neon_flags -march=armv8-a+crc)
endif()

function(shieldfl_instruction_sets target)
  if(avx2 IN_LIST SHIELDFL_INSTRUCTION_SETS)
    target_compile_definitions(${target} PRIVATE SHIELDFL_X86_KERNELS)
  elseif(neon IN_LIST SHIELDFL_INSTRUCTION_SETS)
    target_compile_definitions(${target} PRIVATE SHIELDFL_NEON_KERNELS)
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(set neon avx2 avx512)
    set(sources_of_set ${sources})
    list(FILTER sources_of_set INCLUDE REGEX "_${set}\\.cpp$")
    if(NOT set IN_LIST SHIELDFL_INSTRUCTION_SETS)
      list(REMOVE_ITEM sources ${sources_of_set})
      continue()
    endif()
    # They are compiled one by one, so they keep the warnings that fewer_reads.cmake takes from the others.
    set(flags ${${set}_flags} $<$<CXX_COMPILER_ID:GNU>:-Warray-bounds> $<$<CXX_COMPILER_ID:GNU>:-Wrestrict>
              $<$<CXX_COMPILER_ID:GNU>:-Wstringop-overflow>)
    if(SHIELDFL_SANITIZE)
      # Instrumented loops can no longer be unrolled as asked, which the compiler warns of under no name.
      list(APPEND flags -Wno-error)
    endif()
    # Headers are precompiled for any processor, so these files read their own.
    set_source_files_properties(${sources_of_set} PROPERTIES COMPILE_OPTIONS "${flags}" SKIP_PRECOMPILE_HEADERS ON)
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${sources}")
endfunction()
