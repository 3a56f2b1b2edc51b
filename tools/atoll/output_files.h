// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace atollcmd {

// A set of files that appears as a whole or not at all: Add writes each under a temporary name in
// the same directory, Commit renames them, and what was not committed is deleted again. A file that
// is replaced leaves its mode to the new one. What is there already and no regular file (/dev/null,
// a pipe, a symbolic link) is never replaced: Commit writes into it, or into what it leads to,
// before it renames the others. "-" and /dev/stdout are the standard output, after what was
// printed. Failures throw CommandError.
class OutputFiles {
 public:
  OutputFiles() = default;
  ~OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  // Creates the file's directory and its parents where they are missing. `option` ("--save") named
  // the file or the directory and is named again if that fails.
  void Add(std::string_view option, const std::string& name, const void* data, size_t size);
  void Commit();

 private:
  struct File {
    std::string option;
    std::string temporary_path;  // "" for what is written into
    std::string path;
    std::string data;  // of what is written into
  };

  std::vector<File> files_;
};

// A stream that writes into what `name` is, or into a new file, as it goes along; names mean the
// same as above. Throws CommandError if it cannot be opened, naming the `option`.
std::FILE* OpenOutput(std::string_view option, const std::string& name);
// Whether `name` is "-" or another name of the standard output.
bool IsStandardOutput(const std::string& name);

// Where results about pictures go that the user named by one `option`: `output` itself if it ends
// in one of `extensions` (".jpg"), for a single picture; else `output` is a directory, and each
// picture's file there is called after it, with the first extension and, where names are equal, a
// number. Throws CommandError (usage) for several pictures and one file, for the extension of
// another kind of picture, and for a file that is one of the pictures.
std::vector<std::string> PlanOutputs(std::string_view option, const std::string& output,
                                     const std::vector<std::string>& extensions,
                                     const std::vector<std::string>& pictures);

}  // namespace atollcmd
