// SPDX-License-Identifier: Apache-2.0
//
// usage: classify_cpp MODEL PICTURE.pgm [DEVICE]
//
// The same as classify.c in C++.
#include <algorithm>
#include <atoll/atoll.hpp>
#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace {

int Fail(const std::string& message) {
  std::fprintf(stderr, "classify_cpp: %s\n", message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: %s MODEL PICTURE.pgm [DEVICE]\n", argv[0]);
    return 2;
  }
  const auto device = atollpp::Delegate::Open(argc == 4 ? argv[3] : "auto");
  if (!device) return Fail(device.message());
  const auto model = atollpp::Model::FromFile(argv[1]);
  if (!model) return Fail(model.message());
  auto interpreter = atollpp::Interpreter::Create(*model, *device);
  if (!interpreter) return Fail(interpreter.message());

  const atollpp::Tensor input = interpreter->input(0);
  const atollpp::ConstTensor output = interpreter->output(0);
  if (!input || input.type() != ATOLL_INT8 || !output || output.type() != ATOLL_INT8) {
    return Fail(std::string(argv[1]) + " has no int8 input and output");
  }
  const std::span<int8_t> pixels = input.values<int8_t>();
  std::ifstream file(argv[2], std::ios::binary);
  std::string format;
  size_t width = 0, height = 0, white = 0;
  file >> format >> width >> height >> white;
  file.get();
  file.read(reinterpret_cast<char*>(pixels.data()), static_cast<std::streamsize>(pixels.size()));
  if (!file || format != "P5" || width * height != pixels.size() || white != 255) {
    return Fail(std::string(argv[2]) + " is no binary PGM with " + std::to_string(pixels.size()) +
                " pixels of 0 to 255");
  }
  for (int8_t& pixel : pixels) pixel = static_cast<int8_t>(static_cast<uint8_t>(pixel) - 128);

  if (const atollpp::Status status = interpreter->Invoke(); !status) return Fail(status.message());
  const std::vector<float> scores = output.RealValues();
  const auto best = std::max_element(scores.begin(), scores.end());
  std::printf("class %td, score %.4f\n", best - scores.begin(), static_cast<double>(*best));
}
