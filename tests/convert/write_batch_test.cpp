#include "prepack/convert/module_packer.h"

#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>
#include <thread>

#include "catch.h"
#include "io_fault.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

// A shard with one tensor of `bytes` bytes.
SafetensorsWriter MakeShard(const std::filesystem::path& path, uint64_t bytes) {
  const TensorInfo tensor = {.name = "w", .dtype = DType::kU8, .shape = {bytes}};
  return Value(SafetensorsWriter::Create(path, Value(PlanSafetensors({tensor}, {}))));
}

PageBuffer Filled(size_t bytes, char fill) {
  return PageBuffer(bytes, static_cast<std::byte>(fill));
}

std::string Data(const SafetensorsWriter& shard, size_t bytes) {
  std::string data(bytes, '?');
  RequireOk(
      shard.file().ReadAt(shard.header().data_start, std::as_writable_bytes(std::span(data))));
  return data;
}

// Another thread whose turn it is while the object lives.
class OtherWriter {
 public:
  explicit OtherWriter(SafetensorsWriter& shard)
      : thread_([this, &shard] {
          const std::lock_guard turn(shard.turn());
          Set(has_turn_);
          ends_.wait(false);
        }) {
    has_turn_.wait(false);
  }
  ~OtherWriter() { Set(ends_); }  // and the thread is joined
  OtherWriter(const OtherWriter&) = delete;
  OtherWriter& operator=(const OtherWriter&) = delete;

 private:
  static void Set(std::atomic<bool>& flag) {
    flag = true;
    flag.notify_all();
  }

  std::atomic<bool> has_turn_ = false;
  std::atomic<bool> ends_ = false;
  std::jthread thread_;
};

TEST_CASE("a piece is written at once when nobody else writes, run by run") {
  const TempFolder folder;
  SafetensorsWriter shard = MakeShard(folder / "f", 8);
  WriteBatch batch;
  PageBuffer bytes = Filled(4, 'a');
  RequireOk(batch.Add(shard, 0, {{.offset = 1, .bytes = 2, .count = 2, .stride = 4}}, bytes));
  CHECK(Data(shard, 8) == std::string("\0aa\0\0aa\0", 8));
  RequireOk(batch.Flush());
}

TEST_CASE("pieces wait while another thread writes, and all are written in the end") {
  const TempFolder folder;
  SafetensorsWriter shard = MakeShard(folder / "f", 6);
  WriteBatch batch;
  PageBuffer bytes = Filled(2, 'a');
  {
    const OtherWriter other(shard);
    RequireOk(batch.Add(shard, 0, {{.offset = 0, .bytes = 2}}, bytes));
    bytes = Filled(2, 'b');
    RequireOk(batch.Add(shard, 0, {{.offset = 2, .bytes = 2}}, bytes));
    CHECK(Data(shard, 6) == std::string(6, '\0'));
  }
  bytes = Filled(2, 'c');
  SECTION("with the next piece") {
    RequireOk(batch.Add(shard, 0, {{.offset = 4, .bytes = 2}}, bytes));
    CHECK(Data(shard, 6) == "aabbcc");
  }
  SECTION("when they are flushed") {
    RequireOk(batch.Flush());
    CHECK(Data(shard, 6) == std::string("aabb\0\0", 6));
  }
  SECTION("when the next piece is for another file") {
    SafetensorsWriter second = MakeShard(folder / "g", 2);
    RequireOk(batch.Add(second, 0, {{.offset = 0, .bytes = 2}}, bytes));
    CHECK(Data(shard, 6) == std::string("aabb\0\0", 6));
    CHECK(Data(second, 2) == "cc");
  }
}

TEST_CASE("neither many pieces nor a large one wait for good") {
  const TempFolder folder;
  SafetensorsWriter shard = MakeShard(folder / "f", kMaxWaitingBytes + 1);
  WriteBatch batch;
  const bool large = GENERATE(false, true);
  {
    const OtherWriter other(shard);
    for (size_t i = 0; i < (large ? 1 : kMaxWaitingPieces); ++i) {
      PageBuffer bytes = Filled(1, 'a');
      RequireOk(batch.Add(shard, 0, {{.offset = i, .bytes = 1}}, bytes));
    }
  }
  std::atomic<bool> written = false;
  Status status;
  std::jthread writer;
  {
    const OtherWriter other(shard);
    writer = std::jthread([&] {
      PageBuffer bytes = Filled(large ? kMaxWaitingBytes + 1 : 1, 'b');
      status = batch.Add(shard, 0, {{.offset = 0, .bytes = bytes.size()}}, bytes);
      written = true;
    });
    CHECK_FALSE(written);
  }
  writer.join();
  RequireOk(status);
  CHECK(Data(shard, 2) == (large ? "bb" : "ba"));
}

TEST_CASE("a failed write is an error of the batch") {
  const TempFolder folder;
  SafetensorsWriter shard = MakeShard(folder / "f", 4);
  WriteBatch batch;
  PageBuffer bytes = Filled(2, 'a');
  SECTION("of the disk") {
    const IoFault fault(posix::Call::kWrite, ENOSPC);
    CheckError(batch.Add(shard, 0, {{.offset = 0, .bytes = 2}}, bytes), ErrorKind::kSystem,
               "No space left on device");
  }
  SECTION("of the place") {
    CheckError(batch.Add(shard, 0, {{.offset = 3, .bytes = 2}}, bytes), ErrorKind::kUsage,
               "write outside the tensor");
  }
  RequireOk(batch.Flush());  // nothing is left
}

}  // namespace
}  // namespace prepack::testing
