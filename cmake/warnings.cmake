# Our own C++ compiles without a warning; what we include from elsewhere is not held to that.
function(shieldfl_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)
endfunction()
