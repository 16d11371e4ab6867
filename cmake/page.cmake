# Joins the page of reports with its style and script, and writes it as a string of C:
#   cmake -D FOLDER=src/report -D OUTPUT=page_template.c -P page.cmake
cmake_minimum_required(VERSION 3.25)
foreach(part html css js)
  file(READ ${FOLDER}/page.${part} ${part})
endforeach()
string(REPLACE "@STYLE@" "${css}" html "${html}")
string(REPLACE "@SCRIPT@" "${js}" html "${html}")
string(HEX "${html}" bytes)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "const unsigned char page_template[] = {\n${bytes}0};\n")
