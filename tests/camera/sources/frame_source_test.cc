// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/frame_source.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/picture/image.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/fashion_files.h"

namespace atollrt {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

using Bytes = std::vector<uint8_t>;

Image Flat(int width, int height, uint8_t value) {
  Image image;
  image.Reshape(width, height, 3);
  for (uint8_t& byte : image.pixels) byte = value;
  return image;
}

std::string OpenError(const std::string& spec, const FrameSourceOptions& options = {}) {
  const Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(spec, options);
  return source.ok() ? "opened" : source.status().message();
}

// Decoded, as RGB or gray pixels.
Image Decoded(const Frame& frame, const DecodeOptions& options = {}) {
  PlanarImage planes;
  Image image;
  const Status status = DecodeFrame(frame, options, &planes);
  EXPECT_TRUE(status.ok()) << status.message();
  if (status.ok()) ToImage(planes, &image);
  return image;
}

// The first `limit` frames.
std::vector<Frame> Read(const std::string& spec, const FrameSourceOptions& options, size_t limit) {
  Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(spec, options);
  std::vector<Frame> frames;
  if (!source.ok()) {
    ADD_FAILURE() << source.status().message();
    return frames;
  }
  EXPECT_FALSE((*source)->live());
  while (frames.size() < limit) {
    Frame frame;
    const Result<bool> got = (*source)->Next(&frame);
    EXPECT_TRUE(got.ok()) << got.status().message();
    if (!got.ok() || !*got) break;
    EXPECT_EQ(frame.sequence, frames.size());
    EXPECT_EQ(frame.format, FrameFormat::kEncoded);
    EXPECT_EQ(frame.capture_time_ns, 0);
    frames.push_back(frame);
  }
  return frames;
}

// --- OpenFrameSource -----------------------------------------------------------------------------

TEST(OpenFrameSource, ErrorsNameTheSpec) {
  EXPECT_THAT(OpenError("/nonexistent/video"), HasSubstr("'/nonexistent/video': no such file"));
  EXPECT_THAT(OpenError(""), HasSubstr("a camera is 'test'"));
  EXPECT_THAT(OpenError("/dev/video987654"), StartsWith("/dev/video987654: cannot open"));
  EXPECT_THAT(OpenError("test", {.width = 0}), HasSubstr("0 x 480"));
  EXPECT_THAT(OpenError("fashion:/nonexistent"),
              StartsWith("/nonexistent/t10k-images-idx3-ubyte.gz: cannot open"));
  EXPECT_EQ(OpenFrameSource("/dev/video987654", {}).code(), StatusCode::kNotFound);
}

// --- test ----------------------------------------------------------------------------------------

TEST(TestPattern, MovesAndRepeats) {
  const std::vector<Frame> frames = Read("test", {.width = 160, .height = 120}, 62);
  ASSERT_EQ(frames.size(), 62u);
  EXPECT_EQ(frames[0].width, 160);
  EXPECT_EQ(frames[0].height, 120);
  EXPECT_NE(frames[0].bytes, frames[1].bytes);
  EXPECT_EQ(frames[0].bytes, frames[60].bytes);
  for (const Frame& frame : frames) EXPECT_EQ(Decoded(frame).width, 160);
}

TEST(TestPattern, WorksAtTinySizes) {
  EXPECT_EQ(Read("test", {.width = 1, .height = 1}, 3).size(), 3u);
}

// --- Files ---------------------------------------------------------------------------------------

TEST(PictureDirectory, DeliversTheFilesInOrderOfTheirNames) {
  TemporaryDirectory directory;
  directory.Write("b.jpg", *EncodeJpeg(Flat(8, 4, 10), 90));
  directory.Write("a.JPEG", *EncodeJpeg(Flat(16, 8, 10), 90));
  directory.Write("c.jpg", {1, 2, 3});  // left to the decoder
  directory.Write("notes.txt", {1});
  const std::vector<Frame> frames = Read(directory.path(), {}, 10);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].name, directory.path() + "/a.JPEG");
  EXPECT_EQ(frames[0].width, 16);
  EXPECT_EQ(frames[1].name, directory.path() + "/b.jpg");
  EXPECT_EQ(frames[1].height, 4);
  EXPECT_EQ(frames[2].width, 0);
  PlanarImage planes;
  EXPECT_FALSE(DecodeFrame(frames[2], {}, &planes).ok());
  EXPECT_EQ(Read(directory.path(), {.loop = true}, 7).size(), 7u);
}

TEST(PictureDirectory, RefusesADirectoryWithoutPictures) {
  TemporaryDirectory directory;
  EXPECT_EQ(OpenError(directory.path()),
            directory.path() + ": contains no file named .jpg, .jpeg, .png, .bmp, .ppm or .pgm");
}

TEST(MjpegFile, DeliversEveryPicture) {
  TemporaryDirectory directory;
  Bytes stream;
  std::vector<Bytes> pictures;
  for (int i = 0; i < 5; ++i) {
    pictures.push_back(*EncodeJpeg(Flat(32 + 16 * i, 32, static_cast<uint8_t>(40 * i)), 90));
    stream.insert(stream.end(), pictures.back().begin(), pictures.back().end());
    stream.insert(stream.end(), 200'000, uint8_t{0});  // so that reads end within and between
  }
  const std::string path = directory.Write("video.mjpeg", stream);
  const std::vector<Frame> frames = Read(path, {}, 100);
  ASSERT_EQ(frames.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(frames[i].bytes, pictures[i]) << i;
    EXPECT_EQ(frames[i].width, 32 + 16 * static_cast<int>(i));
  }
  EXPECT_EQ(frames[1].name, path + ", picture 1");
  const std::vector<Frame> looped = Read(path, {.loop = true}, 12);
  ASSERT_EQ(looped.size(), 12u);
  EXPECT_EQ(looped[11].bytes, pictures[1]);
}

TEST(MjpegFile, RefusesAFileWithoutPictures) {
  TemporaryDirectory directory;
  const std::string path = directory.Write("video.mjpeg", Bytes(100, 7));
  for (const bool loop : {false, true}) {
    Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(path, {.loop = loop});
    ASSERT_TRUE(source.ok());
    Frame frame;
    EXPECT_EQ((*source)->Next(&frame).status().message(), path + ": contains no JPEG picture");
  }
}

// Of which the name alone says what it should be.
TEST(MjpegFile, RefusesAnEmptyFileOfAnyKind) {
  TemporaryDirectory directory;
  for (const char* name : {"video.mjpeg", "video.y4m"}) {
    const std::string path = directory.Write(name, {});
    Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(path, {});
    ASSERT_TRUE(source.ok()) << source.status().message();
    Frame frame;
    EXPECT_EQ((*source)->Next(&frame).status().message(), path + ": there is nothing in it");
  }
}

TEST(PictureDirectory, TakesOtherFormats) {
  TemporaryDirectory directory;
  const std::string ppm = "P6 2 1 255\nabcdef";
  directory.Write("a.ppm", Bytes(ppm.begin(), ppm.end()));
  Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(directory.path(), {});
  ASSERT_TRUE(source.ok());
  Frame frame;
  ASSERT_TRUE(*(*source)->Next(&frame));
  EXPECT_EQ(frame.format, FrameFormat::kEncoded);
  const Image image = Decoded(frame);
  ASSERT_EQ(image.width, 2);
  EXPECT_NEAR(image.pixels[0], 'a', 2);
  EXPECT_NEAR(image.pixels[5], 'f', 2);
}

Bytes Y4m(const std::string& parameters, const std::vector<Bytes>& frames) {
  const std::string header = "YUV4MPEG2 " + parameters + "\n";
  Bytes out(header.begin(), header.end());
  for (const Bytes& frame : frames) {
    const std::string line = "FRAME Ip\n";
    out.insert(out.end(), line.begin(), line.end());
    out.insert(out.end(), frame.begin(), frame.end());
  }
  return out;
}

// All frames, and how the stream ended.
std::pair<std::vector<Frame>, std::string> ReadAll(const std::string& path) {
  std::pair<std::vector<Frame>, std::string> all;
  Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(path, {});
  if (!source.ok()) return {{}, source.status().message()};
  while (true) {
    Frame frame;
    const Result<bool> got = (*source)->Next(&frame);
    if (!got.ok()) all.second = got.status().message();
    if (!got.ok() || !*got) return all;
    all.first.push_back(frame);
  }
}

TEST(Y4mFile, DeliversPlanes) {
  TemporaryDirectory directory;
  // 3 x 3 pixels and 2 x 2 of each colour: white, then red.
  const Bytes white(9 + 4 + 4, 128);
  Bytes frames[2] = {white, white};
  std::fill_n(frames[0].begin(), 9, uint8_t{235});
  std::fill_n(frames[1].begin(), 9, uint8_t{81});
  std::fill_n(frames[1].begin() + 9, 4, uint8_t{90});
  std::fill_n(frames[1].begin() + 13, 4, uint8_t{240});
  const std::string path =
      directory.Write("video.y4m", Y4m("W3 H3 F30:1 Ip A1:1 C420mpeg2", {frames[0], frames[1]}));
  const auto [read, end] = ReadAll(path);
  EXPECT_EQ(end, "");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_THAT(Decoded(read[0]).pixels, testing::Each(255));
  const Image red = Decoded(read[1]);
  EXPECT_NEAR(red.pixels[0], 255, 2);
  EXPECT_NEAR(red.pixels[1], 0, 2);
  EXPECT_EQ(red.width, 3);

  Result<std::unique_ptr<FrameSource>> looped = OpenFrameSource(path, {.loop = true});
  ASSERT_TRUE(looped.ok());
  EXPECT_THAT((*looped)->description(), HasSubstr("Y4M of 3 x 3"));
  Frame frame;
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(*(*looped)->Next(&frame));
  EXPECT_EQ(frame.bytes, frames[0]);
  EXPECT_EQ(frame.sequence, 6u);
}

TEST(Y4mFile, TakesOtherSubsampling) {
  TemporaryDirectory directory;
  const std::pair<const char*, size_t> kinds[] = {
      {"C422", 4 + 2 + 2}, {"C444", 12}, {"Cmono", 4}, {"C444 XCOLORRANGE=FULL", 12}};
  for (const auto& [kind, size] : kinds) {
    const std::string path =
        directory.Write("video.y4m", Y4m(std::string("W2 H2 ") + kind, {Bytes(size, 128)}));
    const auto [read, end] = ReadAll(path);
    ASSERT_EQ(read.size(), 1u) << kind << end;
    const Image image = Decoded(read[0]);
    const bool full = std::string_view(kind).ends_with("FULL");
    EXPECT_NEAR(image.pixels[0], full ? 128 : 130, 1) << kind;
    EXPECT_EQ(image.channels, kind == std::string_view("Cmono") ? 1 : 3);
  }
}

TEST(Y4mFile, RefusesWhatItCannotRead) {
  TemporaryDirectory directory;
  const auto error = [&](const Bytes& bytes) {
    return ReadAll(directory.Write("video.y4m", bytes)).second;
  };
  EXPECT_THAT(error(Y4m("W2 H2 C420p10", {})), HasSubstr("'C420p10'; read are 8-bit"));
  EXPECT_THAT(error(Y4m("W H2", {})), HasSubstr("'W', which is no width or height"));
  EXPECT_THAT(error(Y4m("W2x H2", {})), HasSubstr("'W2x'"));
  EXPECT_THAT(error(Y4m("H2", {})), HasSubstr("Y4M of 0 x 2"));
  EXPECT_THAT(error(Y4m("W99999 H2", {})), HasSubstr("Y4M of 99999 x 2"));
  EXPECT_THAT(error(Y4m(std::string(400, ' '), {})), HasSubstr("no end within 256 bytes"));
  Bytes junk = Y4m("W2 H2 Cmono", {Bytes(4, 1)});
  junk.insert(junk.end(), {'F', 'R', 'O', 'G', '\n'});
  EXPECT_THAT(error(junk), HasSubstr("frame 1: does not begin with FRAME"));
  // A frame that is cut off fails alone.
  Bytes cut = Y4m("W2 H2 Cmono", {Bytes(4, 1)});
  cut.pop_back();
  const auto [read, end] = ReadAll(directory.Write("video.y4m", cut));
  ASSERT_EQ(read.size(), 1u);
  PlanarImage planes;
  EXPECT_FALSE(DecodeFrame(read[0], {}, &planes).ok());
}

TEST(Y4mFile, TakesMemoryForWhatIsThereAlone) {
  TemporaryDirectory directory;
  EXPECT_THAT(OpenError(directory.Write("video.y4m", Y4m("W16384 H16384 C444", {}))),
              HasSubstr("16384 x 16384 is above the limit of 67108864 pixels"));
  const std::string path = directory.Write("video.y4m", Y4m("W8192 H8192 C444", {Bytes(3, 1)}));
  const AllocationMeter meter;
  const auto [read, end] = ReadAll(path);
  ASSERT_EQ(read.size(), 1u) << end;
  EXPECT_EQ(read[0].bytes.size(), 3u);
  EXPECT_LT(meter.peak_bytes(), 1u << 20);
}

TEST(Pipe, GivesLargeFramesThatArriveInSmallPieces) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  // 96 MB in pieces of a page. (When each piece cost a pass over the rest, that took 8 s.)
  constexpr int kSide = 8192;
  constexpr size_t kFrameBytes = size_t{kSide} * kSide * 3 / 2;
  std::thread writer([&] {
    const int fd = open(path.c_str(), O_WRONLY);
    const Bytes header = Y4m("W8192 H8192", {Bytes()});
    EXPECT_EQ(write(fd, header.data(), header.size()), static_cast<ssize_t>(header.size()));
    const Bytes piece(4096, 77);
    for (size_t sent = 0; sent < kFrameBytes; sent += piece.size()) {
      EXPECT_EQ(write(fd, piece.data(), piece.size()), 4096);
    }
    close(fd);
  });
  const Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(path, {});
  ASSERT_TRUE(source.ok());
  Frame frame;
  ASSERT_TRUE(*(*source)->Next(&frame));
  writer.join();
  EXPECT_EQ(frame.bytes.size(), kFrameBytes);
  EXPECT_EQ(frame.bytes.back(), 77);
  EXPECT_FALSE(*(*source)->Next(&frame));
  unlink(path.c_str());
}

TEST(Pipe, WaitsForNobody) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  // Nobody ever writes; and neither opening nor stopping waits for that.
  std::atomic<bool> stop = false;
  const Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(path, {.stop = &stop});
  ASSERT_TRUE(source.ok());
  EXPECT_EQ((*source)->description(), path + ": MJPEG or Y4M");
  std::thread later([&] { stop = true; });
  Frame frame;
  EXPECT_FALSE(*(*source)->Next(&frame));
  later.join();
  // In place of a picture, it fails alone.
  directory.Write("a.jpg", *EncodeJpeg(Flat(8, 4, 10), 90));
  const std::string pictures = directory.path();
  ASSERT_EQ(rename(path.c_str(), (pictures + "/b.jpg").c_str()), 0);
  ASSERT_EQ(mkdir((pictures + "/c.jpg").c_str(), 0700), 0);
  directory.Write("d.jpg", *EncodeJpeg(Flat(8, 4, 10), 90));
  const std::vector<Frame> frames = Read(pictures, {}, 10);
  ASSERT_EQ(frames.size(), 4u);
  PlanarImage planes;
  EXPECT_TRUE(DecodeFrame(frames[0], {}, &planes).ok());
  EXPECT_THAT(DecodeFrame(frames[1], {}, &planes).message(), HasSubstr("b.jpg: a pipe, not a"));
  EXPECT_THAT(DecodeFrame(frames[2], {}, &planes).message(), HasSubstr("c.jpg: a directory, not"));
  EXPECT_TRUE(DecodeFrame(frames[3], {}, &planes).ok());
  unlink((pictures + "/b.jpg").c_str());
  rmdir((pictures + "/c.jpg").c_str());
}

TEST(Pipe, EndsWhatHoldsNoPicture) {
  const Result<std::unique_ptr<FrameSource>> source = OpenFrameSource("/dev/zero", {});
  ASSERT_TRUE(source.ok());
  EXPECT_TRUE((*source)->live());
  Frame frame;
  EXPECT_THAT((*source)->Next(&frame).status().message(),
              StartsWith("/dev/zero: no JPEG picture within 16"));
}

TEST(MjpegFile, EndsALoopThatHasNothingAnyMore) {
  TemporaryDirectory directory;
  const std::string path = directory.Write("video.mjpeg", *EncodeJpeg(Flat(8, 4, 10), 90));
  std::atomic<bool> stop = false;
  const FrameSourceOptions options = {.loop = true, .stop = &stop};
  const Result<std::unique_ptr<FrameSource>> cut = OpenFrameSource(path, options);
  const Result<std::unique_ptr<FrameSource>> stopped = OpenFrameSource(path, options);
  Frame frame;
  ASSERT_TRUE(*(*cut)->Next(&frame));
  ASSERT_TRUE(*(*stopped)->Next(&frame));
  stop = true;
  EXPECT_FALSE(*(*stopped)->Next(&frame));
  stop = false;
  ASSERT_EQ(truncate(path.c_str(), 0), 0);
  EXPECT_THAT((*cut)->Next(&frame).status().message(), HasSubstr("there is nothing in it"));
}

TEST(Pipe, IsLiveAndEndsWhenAsked) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int fd = open(path.c_str(), O_RDWR);  // keeps it open for both sides
  const Bytes jpeg = *EncodeJpeg(Flat(16, 16, 50), 90);
  ASSERT_EQ(write(fd, jpeg.data(), jpeg.size()), static_cast<ssize_t>(jpeg.size()));
  std::atomic<bool> stop = false;
  Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(path, {.stop = &stop});
  ASSERT_TRUE(source.ok());
  EXPECT_TRUE((*source)->live());
  Frame frame;
  ASSERT_TRUE(*(*source)->Next(&frame));
  EXPECT_EQ(frame.bytes, jpeg);
  EXPECT_GT(frame.capture_time_ns, 0);
  std::thread later([&] { stop = true; });
  EXPECT_FALSE(*(*source)->Next(&frame));
  later.join();
  close(fd);
  unlink(path.c_str());
}

// A server that sends `bytes` to each connection, or as many connections as there are answers, and
// closes; or keeps it open, silent, until the other side closes.
class CameraServer {
 public:
  enum class After { kClose, kSilence };
  explicit CameraServer(std::vector<std::string> answers, After after = After::kClose)
      : answers_(std::move(answers)), after_(after), fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~CameraServer() {
    shutdown(fd_, SHUT_RDWR);  // wakes accept
    thread_.join();
    close(fd_);
  }
  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url(const std::string& rest) const { return "http://" + host() + rest; }
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  // Waits until so many requests have come.
  void Await(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::minutes(1),
                                  [&] { return requests_.size() >= count; }));
  }

 private:
  void Serve() {
    while (true) {
      const int connection = accept(fd_, nullptr, nullptr);
      if (connection < 0) return;
      std::string request;
      char buffer[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = recv(connection, buffer, sizeof(buffer), 0);
        if (got <= 0) break;
        request.append(buffer, static_cast<size_t>(got));
      }
      std::string answer;
      {
        const std::lock_guard lock(mutex_);
        answer = answers_[std::min(requests_.size(), answers_.size() - 1)];
        requests_.push_back(request);
        changed_.notify_all();
      }
      send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
      if (after_ == After::kClose) shutdown(connection, SHUT_WR);
      while (recv(connection, buffer, sizeof(buffer), 0) > 0) {
      }
      close(connection);
    }
  }

  const std::vector<std::string> answers_;
  const After after_;
  const int fd_;
  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

std::string Redirect(const std::string& location) {
  return "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + "\r\n\r\n";
}
std::string PictureAnswer() {
  const Bytes jpeg = *EncodeJpeg(Flat(16, 8, 50), 90);
  return "HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n" +
         std::string(jpeg.begin(), jpeg.end());
}

TEST(HttpCamera, DeliversTheNewestPictureAndTellsTheEnd) {
  const Bytes jpeg = *EncodeJpeg(Flat(16, 8, 50), 90);
  std::string part = "--b\r\nContent-Type: image/jpeg\r\n\r\n";
  part.append(jpeg.begin(), jpeg.end());
  char size[32];
  std::snprintf(size, sizeof(size), "%zx\r\n", part.size());
  // In chunks, which must not end up in the picture.
  CameraServer server(
      {"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=b\r\n"
       "Transfer-Encoding: chunked\r\n\r\n" +
       (size + part) + "\r\n0\r\n\r\n"});
  {
    Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(server.url("/cam?x=1"), {});
    ASSERT_TRUE(source.ok()) << source.status().message();
    EXPECT_TRUE((*source)->live());
    Frame frame;
    ASSERT_TRUE(*(*source)->Next(&frame));
    EXPECT_EQ(frame.bytes, jpeg);
    EXPECT_EQ(frame.width, 16);
    const Result<bool> more = (*source)->Next(&frame);
    EXPECT_EQ(more.status().code(), StatusCode::kDeviceLost);
    EXPECT_THAT(more.status().message(), HasSubstr("the stream ended"));
  }
  EXPECT_THAT(server.requests(), ElementsAre(StartsWith("GET /cam?x=1 HTTP/1.1\r\n")));
}

TEST(HttpCamera, SaysWhatIsWrong) {
  EXPECT_THAT(OpenError("http://"), HasSubstr("an address is http://HOST"));
  EXPECT_THAT(OpenError("http://host:99999/"), HasSubstr("an address is http://HOST"));
  EXPECT_THAT(OpenError("http://127.0.0.1:1/cam"),
              StartsWith("http://127.0.0.1:1/cam: cannot connect: Connection refused"));
  EXPECT_THAT(OpenError("http://127.0.0.1.invalid/"),
              AllOf(HasSubstr("there is no host '127.0.0.1.inv"),
                    HasSubstr("; check the name, or give the camera's IP address")));
  const auto error = [](const std::string& answer, const std::string& login = "") {
    CameraServer server({answer});
    return OpenError("http://" + login + server.host() + "/");
  };
  EXPECT_THAT(error("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
              AllOf(HasSubstr("nothing at this path (HTTP status 404)"),
                    HasSubstr("; look up the path of the camera's MJPEG stream")));
  const std::string no = "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"x\"\r\n\r\n";
  EXPECT_THAT(error(no), AllOf(HasSubstr("the camera wants a login (HTTP status 401)"),
                               HasSubstr("; give http://USER:PASSWORD@HOST/PATH")));
  EXPECT_THAT(error(no, "me:secret@"),
              AllOf(HasSubstr("the camera refuses this login (HTTP status 401)"),
                    HasSubstr("; check USER and PASSWORD"), testing::Not(HasSubstr("secret"))));
  EXPECT_THAT(
      error("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
      AllOf(HasSubstr("(HTTP status 403)"), HasSubstr("; give another login, http://USER")));
  EXPECT_THAT(error("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>"),
              HasSubstr("there is a page or a text"));
  EXPECT_THAT(error(""), HasSubstr("closed the connection without an answer"));
  EXPECT_THAT(error("SSH-2.0-OpenSSH\r\n"), HasSubstr("does not answer in HTTP"));
  EXPECT_THAT(error("HTTP/1.1 200 OK\r\n" + std::string(1 << 20, 'x')), HasSubstr("16384 bytes"));
}

TEST(HttpCamera, FollowsRedirectsOfTheSameServerAlone) {
  CameraServer other({PictureAnswer()});
  for (const bool same : {true, false}) {
    CameraServer camera({Redirect(same ? "/elsewhere" : other.url("/")), PictureAnswer()});
    const Result<std::unique_ptr<FrameSource>> source =
        OpenFrameSource("http://user:secret@" + camera.host() + "/cam", {});
    EXPECT_EQ(source.ok(), same) << source.status().message();
    if (same) {
      // user:secret
      EXPECT_THAT(camera.requests(),
                  ElementsAre(HasSubstr("\r\nAuthorization: Basic dXNlcjpzZWNyZXQ=\r\n"),
                              HasSubstr("\r\nAuthorization: Basic dXNlcjpzZWNyZXQ=\r\n")));
      EXPECT_THAT(camera.requests()[1], StartsWith("GET /elsewhere HTTP/1.1\r\n"));
    } else {
      EXPECT_THAT(source.status().message(), HasSubstr("another server, " + other.url("/")));
    }
  }
  EXPECT_THAT(other.requests(), testing::IsEmpty());
  CameraServer circle({Redirect("/again")});
  EXPECT_THAT(OpenError(circle.url("/")), HasSubstr("for more than 5 times"));
}

// In whatever state: nobody waits for a camera that keeps us waiting. (The limit is above every
// timeout that would end it otherwise, so that a hang fails, and a slow computer does not.)
TEST(HttpCamera, StopsInEveryState) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace\r\n";
  const std::vector<std::string> states[] = {{""},
                                             {"HTTP/1.1 2"},
                                             {head},
                                             {head + "\r\n--b"},
                                             {Redirect("/again"), ""},
                                             {Redirect("/again"), head + "\r\n\xff\xd8\xff"}};
  for (const std::vector<std::string>& answers : states) {
    CameraServer camera(answers, CameraServer::After::kSilence);
    std::atomic<bool> stop = false;
    std::thread later([&] {
      // A redirect is followed at once, though the first connection stays open.
      camera.Await(1);
      stop = true;
    });
    const Result<std::unique_ptr<FrameSource>> source =
        OpenFrameSource(camera.url("/"), {.stop = &stop});
    EXPECT_EQ(source.code(), StatusCode::kCancelled) << source.status().message();
    later.join();
  }
}

TEST(HttpCamera, LoginsStayOutOfSentences) {
  CameraServer camera({PictureAnswer()});
  const Result<std::unique_ptr<FrameSource>> source =
      OpenFrameSource("HTTP://user:se%63ret@" + camera.host() + "/cam?pwd=secret", {});
  ASSERT_TRUE(source.ok()) << source.status().message();
  Frame frame;
  ASSERT_TRUE(*(*source)->Next(&frame));
  EXPECT_EQ(frame.name, camera.url("/cam?..."));
  EXPECT_EQ((*source)->description(), camera.url("/cam?...: MJPEG over HTTP"));
  const std::string end = (*source)->Next(&frame).status().message();
  EXPECT_THAT(end, HasSubstr("the stream ended"));
  EXPECT_THAT(end, testing::Not(HasSubstr("secret")));
  for (const std::string login : {"user:secret@", "user:se/cret@", "secret:@", "user:%zsecret@"}) {
    for (const std::string rest : {"127.0.0.1:1/", "127.0.0.1:99999/", "", "no such host/", ":x"}) {
      for (const std::string scheme : {"http://", "HTTP://", "https://", "rtsp://", ""}) {
        const std::string error = OpenError(scheme + login + rest);
        EXPECT_THAT(error, testing::Not(testing::AnyOf(HasSubstr("secret"), HasSubstr("se/cret"))))
            << scheme + login + rest;
      }
    }
  }
}

// --- fashion:DIR ---------------------------------------------------------------------------------

TEST(Fashion, CentresTheEnlargedPicture) {
  TemporaryDirectory directory;
  const Bytes images = IdxImages(3);
  directory.WriteGzip("t10k-images-idx3-ubyte.gz", images);
  directory.Write("t10k-labels-idx1-ubyte", IdxLabels({7, 0, 9}));
  const std::vector<Frame> frames = Read("fashion:" + directory.path(), {}, 10);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].label, 7);
  EXPECT_EQ(frames[2].label, 9);
  EXPECT_EQ(frames[1].crop, (Rect{96, 16, 448, 448}));
  EXPECT_EQ(frames[1].name, "fashion:" + directory.path() + ", picture 1");

  Image original;
  original.Reshape(28, 28, 1);
  std::copy_n(images.begin() + 16 + 784, 784, original.pixels.begin());
  const Result<Image> expected = Resize(original, 448, 448);
  const Image image = Decoded(frames[1], {.channels = 1});
  ASSERT_EQ(image.width, 640);
  ASSERT_EQ(image.height, 480);
  for (int y = 0; y < 480; ++y) {
    for (int x = 0; x < 640; ++x) {
      const int value = image.pixels[static_cast<size_t>(y * 640 + x)];
      const bool inside = x >= 96 && x < 96 + 448 && y >= 16 && y < 16 + 448;
      const int want = inside ? expected->pixels[static_cast<size_t>((y - 16) * 448 + x - 96)] : 0;
      ASSERT_NEAR(value, want, 12) << x << ", " << y;
    }
  }
  EXPECT_EQ(Read("fashion:" + directory.path(), {.loop = true}, 8)[7].label, 0);
}

TEST(Fashion, RefusesBadFiles) {
  const Bytes good_images = IdxImages(2);
  const Bytes good_labels = IdxLabels({1, 2});
  const auto error = [](const Bytes& images, const Bytes& labels) {
    TemporaryDirectory directory;
    directory.Write("t10k-images-idx3-ubyte", images);
    directory.Write("t10k-labels-idx1-ubyte", labels);
    return OpenError("fashion:" + directory.path());
  };
  EXPECT_EQ(error(good_images, good_labels), "opened");
  EXPECT_THAT(error({}, good_labels), HasSubstr("images-idx3-ubyte: 0 bytes are too few"));
  EXPECT_THAT(error(good_labels, good_labels), HasSubstr("too few for an IDX header"));
  EXPECT_THAT(error(good_images, good_images), HasSubstr("magic 00000803, not 00000801"));
  EXPECT_THAT(error(good_images, IdxLabels({1, 2, 3})), HasSubstr("3 labels for 2 pictures"));
  EXPECT_THAT(error(IdxImages(0), IdxLabels({})), HasSubstr("0 labels for 0 pictures"));
  Bytes bad = good_images;
  bad[11] = 27;
  EXPECT_THAT(error(bad, good_labels), HasSubstr("dimension 1 is 27, not 28"));
  bad = good_images;
  bad[4] = 0xff;
  EXPECT_THAT(error(bad, good_labels), HasSubstr("4278190082 items are above the limit"));
  bad = good_images;
  bad.pop_back();
  EXPECT_THAT(error(bad, good_labels), HasSubstr("2 items take 1568 bytes, but 1567 are present"));
}

TEST(Fashion, RefusesACutOffGzipFile) {
  TemporaryDirectory directory;
  const std::string path = directory.WriteGzip("t10k-images-idx3-ubyte.gz", IdxImages(20));
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  ASSERT_EQ(truncate(path.c_str(), info.st_size / 2), 0);
  EXPECT_THAT(OpenError("fashion:" + directory.path()), StartsWith(path + ": cannot read"));
}

// --- YUYV ----------------------------------------------------------------------------------------

TEST(DecodeFrame, ConvertsYuyv) {
  Frame frame;
  frame.format = FrameFormat::kYuyv;
  frame.width = 2;
  frame.height = 4;
  // Black and white; gray beyond the range; BT.601 red; blue.
  frame.bytes = {16, 128, 235, 128, 0, 128, 255, 128, 81, 90, 81, 240, 41, 240, 41, 110};
  const Image image = Decoded(frame);
  const std::vector<int> expected = {0,   0, 0, 255, 255, 255, 0, 0, 0,   255, 255, 255,
                                     255, 0, 0, 255, 0,   0,   0, 0, 255, 0,   0,   255};
  ASSERT_EQ(image.pixels.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(image.pixels[i], expected[i], 2) << i;
  EXPECT_THAT(Decoded(frame, {.channels = 1}).pixels, ElementsAre(0, 255, 0, 255, 76, 76, 29, 29));
  frame.full_range = true;
  EXPECT_THAT(Decoded(frame, {.channels = 1}).pixels, ElementsAre(16, 235, 0, 255, 81, 81, 41, 41));
}

TEST(DecodeFrame, RefusesYuyvOfTheWrongSize) {
  Frame frame;
  frame.format = FrameFormat::kYuyv;
  frame.width = 4;
  frame.height = 2;
  frame.bytes.resize(15);
  PlanarImage image;
  EXPECT_EQ(DecodeFrame(frame, {}, &image).message(),
            "uncompressed frame: 4 x 2 takes 16 bytes, but 15 are present");
  frame.width = 3;
  EXPECT_FALSE(DecodeFrame(frame, {}, &image).ok());
  frame.width = 4;
  frame.bytes.resize(16);
  EXPECT_TRUE(DecodeFrame(frame, {}, &image).ok());
  EXPECT_FALSE(DecodeFrame(frame, {.channels = 2}, &image).ok());
  EXPECT_EQ(DecodeFrame(frame, {.max_pixels = 7}, &image).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace atollrt
