# Writes the text of the file FROM as a C array NAME of characters, ended by 0, into the file TO.
# Each #include "FILE" of the text is replaced by the contents of FOLDER/FILE.
file(READ ${FROM} hex HEX)
file(STRINGS ${FROM} includes REGEX "^#include \"")
foreach(line IN LISTS includes)
    string(REGEX REPLACE "#include \"(.*)\"" "\\1" included "${line}")
    file(READ ${FOLDER}/${included} text HEX)
    string(HEX "${line}" line)
    string(REPLACE "${line}0a" "${text}" hex "${hex}")
endforeach()
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
string(REPEAT "'.x..'," 12 line)
string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
get_filename_component(from ${FROM} NAME)
file(WRITE ${TO} "/* Made from ${from}. */\nextern const char ${NAME}[];\n"
     "const char ${NAME}[] = {\n${bytes}0};\n")
