# Kernels for one instruction set are in files of their own, named *_avx2.cpp and *_avx512.cpp, and these alone are
# compiled with its flags: everything else runs on any processor of the architecture.
set(SHIELDFL_INSTRUCTION_SETS scalar)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND SHIELDFL_INSTRUCTION_SETS avx2 avx512)
endif()

function(shieldfl_instruction_sets target)
  get_target_property(sources ${target} SOURCES)
  if(NOT avx2 IN_LIST SHIELDFL_INSTRUCTION_SETS)
    list(FILTER sources EXCLUDE REGEX "_avx(2|512)\\.cpp$")
    set_target_properties(${target} PROPERTIES SOURCES "${sources}")
    return()
  endif()
  target_compile_definitions(${target} PRIVATE SHIELDFL_X86_KERNELS)
  set(avx2 -mavx2 -mfma -mbmi -mbmi2 -mpopcnt -mpclmul -msse4.2)
  set(avx512 ${avx2} -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx512ifma -mavx512vbmi -mavx512vbmi2
             -mavx512vpopcntdq -mprefer-vector-width=512)
  if(SHIELDFL_SANITIZE)
    # Instrumented loops can no longer be unrolled as asked, which the compiler warns of under no name.
    list(APPEND avx2 -Wno-error)
    list(APPEND avx512 -Wno-error)
  endif()
  # Headers are precompiled for any processor, so these files read their own.
  foreach(source IN LISTS sources)
    if(source MATCHES "_avx2\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${avx2}" SKIP_PRECOMPILE_HEADERS ON)
    elseif(source MATCHES "_avx512\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${avx512}" SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()
