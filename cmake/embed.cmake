# FROM, a text file, as a C array of characters NAME in the file TO, ended by 0.  The files that it
# includes are in FOLDER.
file(READ ${FROM} hex HEX)
file(STRINGS ${FROM} includes REGEX "^#include \"")
foreach(line IN LISTS includes)
    string(REGEX REPLACE "#include \"(.*)\"" "\\1" included "${line}")
    file(READ ${FOLDER}/${included} text HEX)
    string(HEX "${line}" line)
    string(REPLACE "${line}0a" "${text}" hex "${hex}")
endforeach()
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
get_filename_component(from ${FROM} NAME)
file(WRITE ${TO} "/* Made from ${from}. */\nextern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0};\n")
