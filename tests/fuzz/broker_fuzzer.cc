// SPDX-License-Identifier: Apache-2.0
//
// A hostile client of a broker, of an Atoll-1 or a Coral: messages in any order, cut and
// lengthened, with any files or none, executables and packages with bytes changed. The broker keeps
// to its protocol, and another client's request gets its bytes after each input.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/check.h"
#include "driver/broker/messages.h"
#include "driver/broker/socket.h"
#include "driver/coral/executable.h"
#include "driver/coral/package.h"
#include "driver/open_device.h"
#include "serve/broker/broker.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/requests.h"
#include "tests/support/coral_packages.h"
#include "tests/support/echoing_coral.h"
#include "tests/support/emulated_device.h"
#include "tests/support/test_executables.h"

namespace atollrt::broker_fuzzer {

namespace {

constexpr uint8_t kOffset = 9;
constexpr uint32_t kCount = 8;

std::shared_ptr<const Executable> Table() {
  return std::make_shared<const Executable>(
      MakeTableExecutable({.count = kCount, .offset = kOffset}));
}

std::shared_ptr<const CoralExecutable> Sum() {
  CoralExecutable executable = *ReadCoralPackage(WritePackage(StandAloneModel()));
  executable.package = WritePackage(StandAloneModel());
  return std::make_shared<const CoralExecutable>(std::move(executable));
}

// One broker for all inputs, with a client that nobody may disturb.
struct House {
  House(std::unique_ptr<Device> device, std::shared_ptr<const AnyExecutable> its_executable)
      : executable(std::move(its_executable)) {
    static std::vector<std::string> folders;
    if (folders.empty()) {
      std::atexit([] {
        for (const std::string& folder : folders) std::filesystem::remove_all(folder);
      });
    }
    std::string& folder = folders.emplace_back("/tmp/atoll_fuzz_XXXXXX");
    ATOLL_CHECK(mkdtemp(folder.data()) != nullptr);
    path = folder + "/broker.sock";
    BrokerOptions options;
    options.path = path;
    options.share_of = [](const Peer&, const std::string& name) {
      return BrokerShare{.priority_max = 3,
                         .requests = 8,
                         .executables = 4,
                         .arenas = 4,
                         .bytes = 1 << 20,
                         .may_reset = name.starts_with('r')};
    };
    auto created = Broker::Create(std::move(device), options);
    ATOLL_CHECK(created.ok());
    broker = *std::move(created);
    std::thread([its = broker.get()] { ATOLL_CHECK(its->Run().ok()); }).detach();
    auto opened = OpenDevice({.device = "broker:" + path, .on_loss = OnDeviceLoss::kFail});
    ATOLL_CHECK(opened.ok());
    honest = *std::move(opened);
    const auto loaded = honest->Load(executable);
    ATOLL_CHECK(loaded.ok());
    id = *loaded;
  }
  ~House() = delete;

  FileDescriptor NewSocket() const {
    auto socket = ConnectTo(path, Clock::now() + std::chrono::seconds(60));
    ATOLL_CHECK(socket.ok());
    return *std::move(socket);
  }

  void CheckHonest() {
    const bool is_coral = executable->family == DeviceFamily::kCoral;
    std::vector<uint8_t> input(executable->inputs[0].bytes), output(executable->outputs[0].bytes);
    for (uint8_t& byte : input) byte = next++;
    const auto request = honest->Submit({.executable = id, .inputs = {input}, .outputs = {output}});
    ATOLL_CHECK(request.ok() && honest->Wait(*request, nullptr).ok());
    const uint8_t sum = std::accumulate(input.begin(), input.end(), uint8_t{0});
    for (size_t i = 0; i < output.size(); ++i) {
      ATOLL_CHECK(output[i] == (is_coral ? sum : static_cast<uint8_t>(input[i] + kOffset)));
    }
  }

  std::string path;
  std::unique_ptr<Broker> broker;
  std::unique_ptr<Device> honest;
  const std::shared_ptr<const AnyExecutable> executable;
  ExecutableId id = 0;
  uint8_t next = 0;
};

FileDescriptor Memfd(size_t bytes, std::span<const uint8_t> content, int seals) {
  FileDescriptor memory(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ATOLL_CHECK(memory.get() >= 0 && ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0);
  (void)!pwrite(memory.get(), content.data(), std::min(content.size(), bytes), 0);
  (void)fcntl(memory.get(), F_ADD_SEALS, seals);
  return memory;
}

// A file of the kind that the input says.
std::vector<FileDescriptor> Files(Input* input, size_t bytes, std::span<const uint8_t> content) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  std::vector<FileDescriptor> files;
  switch (input->Byte() % 12) {
    case 0:
      break;
    case 1: {
      int ends[2];
      ATOLL_CHECK(pipe2(ends, O_CLOEXEC) == 0);
      files.emplace_back(ends[0]);
      const FileDescriptor other(ends[1]);
      break;
    }
    case 2:
      files.push_back(Memfd(bytes, content, 0));
      break;
    case 3:
      files.emplace_back(open("/dev/null", O_RDWR | O_CLOEXEC));
      break;
    case 4:
      for (uint8_t i = input->Byte() % 6; i > 0; --i) {
        files.push_back(Memfd(bytes, content, kSeals));
      }
      break;
    case 5:
      files.emplace_back(eventfd(0, EFD_CLOEXEC));
      break;
    case 6:
      files.push_back(Memfd(bytes, content, F_SEAL_SHRINK | F_SEAL_SEAL));
      break;
    case 7:
      files.push_back(Memfd(bytes, content, kSeals | F_SEAL_WRITE));
      break;
    case 8:
      files.push_back(Memfd(input->Byte() * 16, content, kSeals));
      break;
    default:
      files.push_back(Memfd(bytes, content, kSeals));
      break;
  }
  return files;
}

void Send(int socket, std::span<const uint8_t> message, const std::vector<FileDescriptor>& files) {
  iovec part = {.iov_base = const_cast<uint8_t*>(message.data()), .iov_len = message.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
  if (!files.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    for (size_t i = 0; i < files.size(); ++i) {
      const int fd = files[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &fd, sizeof(fd));
    }
  }
  (void)sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// A number that is likely to mean something, or any.
uint64_t Number(Input* input) {
  const uint8_t byte = input->Byte();
  if (byte < 200) return byte % 8;
  if (byte < 240) return uint64_t{1} << (byte % 64);
  return uint64_t{input->Word()} << 32 | input->Word();
}

// What goes next, and the files that go with it.
std::vector<uint8_t> Message(bool to_coral, Input* input, std::vector<FileDescriptor>* files) {
  switch (input->Byte() % 12) {
    case 0: {
      BrokerHello hello;
      if (input->Byte() > 230) hello.protocol_min = static_cast<uint32_t>(Number(input));
      const char name[] = {static_cast<char>(input->Byte())};
      return WriteBrokerMessage(hello, TailOf(std::string_view(name, 1)));
    }
    case 1: {
      BrokerArena arena;
      arena.request = static_cast<uint32_t>(Number(input));
      arena.id = static_cast<uint32_t>(Number(input));
      arena.bytes = input->Byte() < 200 ? 4096 : Number(input);
      *files = Files(input, std::min<uint64_t>(arena.bytes, 1 << 16), {});
      return WriteBrokerMessage(arena);
    }
    case 2:
    case 3: {
      std::vector<uint8_t> stored =
          to_coral ? WritePackage(StandAloneModel()) : WriteExecutable(*Table());
      for (uint8_t changes = input->Byte() % 8; changes > 0; --changes) {
        stored[input->Word() % stored.size()] = input->Byte();
      }
      BrokerLoad load;
      load.request = static_cast<uint32_t>(Number(input));
      load.residency_set = static_cast<uint32_t>(Number(input));
      load.bytes = input->Byte() < 220 ? stored.size() : Number(input);
      *files = Files(input, stored.size(), stored);
      return WriteBrokerMessage(load);
    }
    case 4: {
      BrokerUnload unload;
      unload.executable = static_cast<uint32_t>(Number(input));
      return WriteBrokerMessage(unload);
    }
    case 5: {
      BrokerDrop drop;
      drop.arena = static_cast<uint32_t>(Number(input));
      return WriteBrokerMessage(drop);
    }
    case 6: {
      BrokerCancel cancel;
      cancel.request = static_cast<uint32_t>(Number(input));
      return WriteBrokerMessage(cancel);
    }
    case 7: {
      if (input->Byte() % 2 == 0) {
        BrokerList list;
        list.request = static_cast<uint32_t>(Number(input));
        list.behind = static_cast<uint32_t>(Number(input));
        return WriteBrokerMessage(list);
      }
      BrokerReset reset;
      reset.request = static_cast<uint32_t>(Number(input));
      return WriteBrokerMessage(reset);
    }
    case 8: {
      std::vector<uint8_t> bytes(input->Byte());
      input->Fill(bytes);
      return bytes;
    }
    default: {
      BrokerSubmit submit;
      submit.request = static_cast<uint32_t>(Number(input));
      submit.executable = static_cast<uint32_t>(Number(input));
      submit.priority = static_cast<int32_t>(Number(input));
      submit.timeout_ms = input->Byte() < 240 ? 100 : Number(input);
      std::vector<BrokerBuffer> buffers(input->Byte() < 240 ? 2 : input->Byte());
      submit.buffers = static_cast<uint32_t>(buffers.size());
      for (BrokerBuffer& buffer : buffers) {
        buffer.arena = static_cast<uint32_t>(Number(input));
        buffer.offset = input->Byte() < 220 ? input->Byte() * 8 : Number(input);
      }
      return WriteBrokerMessage(submit, {reinterpret_cast<const uint8_t*>(buffers.data()),
                                         buffers.size() * sizeof(BrokerBuffer)});
    }
  }
}

}  // namespace

ATOLL_FUZZ_TARGET(broker) {
  // For good: their threads have no end.
  static House* const houses[] = {
      new House(EmulatedDevice{.memory_bytes = 1 << 20}.Open(), Table()),
      new House(EchoingCoralDevice(), Sum())};
  Input input({data, size});
  const uint8_t first = input.Byte();
  const bool to_coral = first >= 128;
  House* const house = houses[to_coral ? 1 : 0];
  {
    const auto socket = house->NewSocket();
    // Most come further with a Hello.
    if (first % 8 != 0) Send(socket.get(), WriteBrokerMessage(BrokerHello()), {});
    ReceivedMessage answer;
    while (!input.empty()) {
      std::vector<FileDescriptor> files;
      std::vector<uint8_t> message = Message(to_coral, &input, &files);
      const uint8_t cut = input.Byte();
      if (cut > 240) message.resize(message.size() * (cut - 240) / 8);
      const uint8_t also = input.Byte();
      if (also > 250 && files.empty()) files = Files(&input, 64, {});
      if (!message.empty()) Send(socket.get(), message, files);
      // Some wait for answers, and some do something else meanwhile.
      if (also % 4 == 0) {
        (void)ReceiveMessage(socket.get(), Clock::now() + std::chrono::milliseconds(also / 16),
                             &answer);
      }
    }
  }
  house->CheckHonest();
  return 0;
}

}  // namespace atollrt::broker_fuzzer
