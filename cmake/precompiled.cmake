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
