# Headers of libraries, which take longer to read than most of our files to compile, are read once for all files of a
# target. Builds with sanitizers go without, and so they notice a header that a file forgets to include.
function(shieldfl_precompiled target)
  if(NOT SHIELDFL_SANITIZE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# As the headers of another target, which is compiled with the same flags.
function(shieldfl_precompiled_by other target)
  if(NOT SHIELDFL_SANITIZE)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()

# So are our own headers: several files of a target are compiled as one, so names that are local to a file are not those of
# another that it may be compiled with. GCC 12 inlines more then, and takes the short text inside of a std::string for all
# the room that it has; the builds with sanitizers, which go without this too, have these warnings on.
function(shieldfl_compiled_together target files)
  if(NOT SHIELDFL_SANITIZE)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds
                           -Wno-restrict -Wno-stringop-overflow>)
  endif()
endfunction()
