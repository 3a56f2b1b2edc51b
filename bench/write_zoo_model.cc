// SPDX-License-Identifier: Apache-2.0
//
// Writes a network of the zoo as a .tflite file:
//
//   write_zoo_model NAME FILE [SEED]     write_zoo_model --list
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "models/zoo/zoo.h"
#include "runtime/tflite/tflite_writer.h"

namespace atollrt {
namespace {

int Fail(const Status& status) {
  std::fprintf(stderr, "write_zoo_model: %s\n", status.message().c_str());
  return 1;
}

int List() {
  std::printf("usual networks\n");
  for (const std::string& name : ZooNetworks()) std::printf("  %s\n", name.c_str());
  std::printf("families\n");
  for (const std::string& family : ZooFamilies()) std::printf("  %s\n", family.c_str());
  return 0;
}

int Write(const char* name, const char* path, uint64_t seed) {
  const auto model = BuildZooModel(name, {.seed = seed});
  if (!model.ok()) return Fail(model.status());
  const auto bytes = WriteTflite(model->graph);
  if (!bytes.ok()) return Fail(bytes.status());
  FILE* const file = std::fopen(path, "wb");
  if (file == nullptr) return Fail(NotFound("cannot create '%s'", path));
  const size_t written = std::fwrite(bytes->data(), 1, bytes->size(), file);
  if (std::fclose(file) != 0 || written != bytes->size()) {
    return Fail(ResourceExhausted("cannot write %zu bytes to '%s'", bytes->size(), path));
  }
  return 0;
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) return atollrt::List();
  if (argc == 3 || argc == 4) {
    const uint64_t seed = argc == 4 ? std::strtoull(argv[3], nullptr, 0) : 1;
    return atollrt::Write(argv[1], argv[2], seed);
  }
  std::fprintf(stderr, "usage: write_zoo_model NAME FILE [SEED] | --list\n");
  return 2;
}
