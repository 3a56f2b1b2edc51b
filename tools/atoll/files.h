// SPDX-License-Identifier: Apache-2.0
//
// The files that the command reads and writes. Failures throw CommandError with what to do instead;
// `option` ("--output") is what named the file.
#pragma once

#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace atollcmd {

// The words that the command was started with, less its name, or those of a replay: recordings keep
// them, and nothing is written over a file that is named twice there.
const std::vector<std::string>& CommandLine();
void SetCommandLine(std::vector<std::string> words);

// ---- Reading -----------------------------------------------------------------------------------

// All bytes of a file, of 2 GiB at most, or of a pipe, of 64 MiB.
std::string ReadFile(const std::string& path);
// At most `bytes_max` bytes of its beginning. `fail`, which throws, gets "open" or "read", and why
// that cannot be with what to do.
std::string ReadBeginning(
    const std::string& path, size_t bytes_max,
    const std::function<void(const char* verb, const std::string& why)>& fail);
// Throws if there is no file that can be read; `what` should be there.
void CheckFile(std::string_view option, const std::string& path, std::string_view what);

// What the library calls with bytes: appends them to a std::string.
void AppendBytes(const void* data, size_t size, void* string);

// ---- Writing -----------------------------------------------------------------------------------

// Whether a file of this name can be written, as far as one can tell before the work is done: it
// has a name, is no folder, and its folder is there. Missing folders are not made: they are more
// often a misspelt name than a wish.
void CheckOutputFile(std::string_view option, const std::string& path);

// Throws if the file is there already and another word of the command line names it, too: what is
// read would be overwritten.
void CheckNamedOnce(std::string_view option, const std::string& path);

// What to do about a file that could not be written, by errno.
std::string AdviseWriting(std::string_view option, int error);

// Only that its folder is there.
void CheckParentOf(std::string_view option, const std::string& path);

// The same of a folder for several files, which is made if its parent is there.
void CheckOutputFolder(std::string_view option, const std::string& path);

// A set of files that appears as a whole or not at all: Add writes each under a temporary name in
// the same directory, Commit renames them, and what was not committed is deleted again. A file that
// is replaced leaves its mode to the new one. What is there already and no regular file (/dev/null,
// a pipe, a symbolic link) is never replaced: Commit writes into it, or into what it leads to,
// before it renames the others. "-" and /dev/stdout are the standard output, after what was
// printed.
class OutputFiles {
 public:
  OutputFiles() = default;
  ~OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  // Creates the file's directory and its parents where they are missing.
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

// One file, at once.
void WriteOutput(std::string_view option, const std::string& name, std::string_view bytes);

// A stream that writes into what `name` is, or into a new file, as it goes along; names mean the
// same as above.
std::FILE* OpenOutput(std::string_view option, const std::string& name);
// Whether `name` is "-" or another name of the standard output.
bool IsStandardOutput(const std::string& name);

// Where results about pictures go that the user named by one `option`: `output` itself if it ends
// in one of `extensions` (".jpg"), for a single picture; else `output` is a directory, and each
// picture's file there is called after it, with the first extension and, where names are equal, a
// number. Throws (usage) for several pictures and one file, for the extension of
// another kind of picture, and for a file that is one of the pictures.
std::vector<std::string> PlanOutputs(std::string_view option, const std::string& output,
                                     const std::vector<std::string>& extensions,
                                     const std::vector<std::string>& pictures);

}  // namespace atollcmd
