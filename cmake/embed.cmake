# FROM, a text file, as a C array of characters NAME in the file TO, ended by 0.
file(READ ${FROM} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
get_filename_component(from ${FROM} NAME)
file(WRITE ${TO} "/* Made from ${from}. */\nextern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0};\n")
