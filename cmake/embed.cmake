# Text files as C arrays that end with a NUL: cmake -DOUT=FILE.c -DPREFIX=gw_cli_ -DFILES=a.html;a.css -P embed.cmake
set(code "/* Made by cmake/embed.cmake. */\n")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER ${name} name)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(REPLACE "'\\x0a'," "'\\x0a',\n" bytes "${bytes}") # a line of the file, a line of the array
  string(APPEND code "extern const char ${PREFIX}${name}[];\nconst char ${PREFIX}${name}[] = {\n${bytes}0};\n")
endforeach()
file(WRITE ${OUT} "${code}")
