// SPDX-License-Identifier: Apache-2.0
//
// What `atoll doctor --fix` can do about a finding: bind a PCI function to vfio-pci, and install
// the rules by which udev gives nodes to users. Each is a list of steps that are shown before
// anything is done.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/delegate.h"

namespace atollcmd {

// Either a text that is written to a file, or a program that is run.
struct MendingStep {
  std::string shown;  // as one would type it, as root
  std::string file;   // "": there are words
  std::string text;
  std::vector<std::string> words;
  bool optional = false;  // it does not matter if this one fails
};

struct Mending {
  std::string device;  // of the finding
  std::string effect;  // one sentence
  std::vector<MendingStep> steps;
};

// `root` is a folder that stands for /, in which no program is run; "" is this computer.
std::vector<Mending> MendingsOf(std::span<const AtollFinding> findings, const std::string& root);

// Does the steps, one after the other. What failed, in a sentence.
std::optional<std::string> Mend(const Mending& mending);

}  // namespace atollcmd
