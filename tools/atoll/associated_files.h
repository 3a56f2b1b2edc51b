// SPDX-License-Identifier: Apache-2.0
//
// Files that a model brings along: TensorFlow Lite's metadata writers append a ZIP archive with
// label files and the like to the flatbuffer.
#pragma once

#include <optional>
#include <string>

namespace atollcmd {

struct AssociatedFile {
  std::string name;  // in the archive
  std::string text;
};

// The label file of the model at this path: the first text file whose name has "label" in it, or
// the only text file. Nothing if there is none, or if the archive, whose bytes are hostile, is
// damaged or keeps it in a way that nobody writes. At most 16 MiB.
std::optional<AssociatedFile> FindEmbeddedLabels(const std::string& model);

}  // namespace atollcmd
