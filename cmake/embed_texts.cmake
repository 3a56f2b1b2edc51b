# cmake -DOUTPUT=x.inc "-DFILES=a.json;b.json" -P embed_texts.cmake writes one line per file for an
# initializer list of pairs: {"a", R"text(...)text"},
set(content "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND content "{\"${name}\", R\"text(${text})text\"},\n")
endforeach()
file(WRITE ${OUTPUT} "${content}")
