// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace atollcmd {

// Whether a file of this name can be written, as far as one can tell before the work is done: it
// has a name, is no folder, and its folder is there. Throws CommandError with what to do instead;
// `option` ("--output") named it. Missing folders are not made: they are more often a misspelt name
// than a wish.
void CheckOutputFile(std::string_view option, const std::string& path);

// Throws CommandError if the file is there already and another word of the command line names it,
// too: what is read would be overwritten.
void CheckNamedOnce(std::string_view option, const std::string& path);

// What to do about a file that could not be written, by errno.
std::string AdviseWriting(std::string_view option, int error);

// Only that its folder is there.
void CheckParentOf(std::string_view option, const std::string& path);

// The same of a folder for several files, which is made if its parent is there.
void CheckOutputFolder(std::string_view option, const std::string& path);

}  // namespace atollcmd
