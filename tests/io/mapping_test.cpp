#include "prepack/io/mapping.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "catch.h"
#include "prepack/io/file.h"
#include "prepack/io/posix.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kFileBytes = 1 << 20;

std::byte ByteAt(uint64_t offset) {
  return static_cast<std::byte>((offset * 2654435761U) >> 13 & 0xFFU);
}

std::filesystem::path WriteSample(const TempFolder& folder) {
  std::string text;
  for (uint64_t i = 0; i < kFileBytes; ++i) text += static_cast<char>(ByteAt(i));
  RequireOk(WriteTextFile(folder / "sample", text));
  return folder / "sample";
}

void CheckRuns(const File& file, const ByteRuns& runs) {
  std::vector<std::byte> out(runs.runs * runs.run_bytes);
  RequireOk(file.ReadRunsAt(runs, out));
  for (uint64_t i = 0; i < out.size(); ++i) {
    const uint64_t offset = runs.offset + i / runs.run_bytes * runs.stride + i % runs.run_bytes;
    REQUIRE(out[i] == ByteAt(offset));
  }
}

TEST_CASE("runs are copied back to back, whatever their size") {
  const TempFolder folder;
  const File file = Value(File::OpenForRead(WriteSample(folder)));
  CheckRuns(file, {.offset = 3, .run_bytes = 5, .stride = 1000, .runs = 1000});
  CheckRuns(file, {.offset = 0, .run_bytes = 4096, .stride = 8192, .runs = 128});
  CheckRuns(file, {.offset = 7, .run_bytes = 20'000, .stride = 30'000, .runs = 30});
  CheckRuns(file, {.offset = 9, .run_bytes = 64, .stride = 64, .runs = 100});
  CheckRuns(file, {.offset = 9, .run_bytes = 77, .stride = 0, .runs = 1});
  CheckRuns(file, {.offset = kFileBytes - 11, .run_bytes = 1, .stride = 10, .runs = 2});
  RequireOk(file.ReadRunsAt({.offset = 5, .run_bytes = 8, .stride = 16, .runs = 0}, {}));
}

TEST_CASE("runs behind the end of the file are an error") {
  const TempFolder folder;
  const File file = Value(File::OpenForRead(WriteSample(folder)));
  std::vector<std::byte> out(20);
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  for (const ByteRuns& runs :
       {ByteRuns{.offset = kFileBytes - 10, .run_bytes = 10, .stride = 11, .runs = 2},
        ByteRuns{.offset = 0, .run_bytes = 10, .stride = most, .runs = 2},
        ByteRuns{.offset = most - 4, .run_bytes = 10, .stride = 20, .runs = 2}}) {
    CheckError(file.ReadRunsAt(runs, out), ErrorKind::kMalformed, "the file ended early");
  }
}

TEST_CASE("a file that shrinks while it is mapped is an error, not a signal") {
  const TempFolder folder;
  const std::filesystem::path path = WriteSample(folder);
  const File file = Value(File::OpenForRead(path));
  const ByteRuns all{.offset = 0, .run_bytes = 16, .stride = 4096, .runs = 256};
  CheckRuns(file, all);
  std::filesystem::resize_file(path, 3 * 4096);
  std::vector<std::byte> out(all.runs * all.run_bytes);
  for (int i = 0; i < 2; ++i) {  // also when the pages were lost before
    CheckError(file.ReadRunsAt(all, out), ErrorKind::kMalformed, "shrank while prepack read it");
  }
  // Another file is not concerned.
  const TempFolder other;
  CheckRuns(Value(File::OpenForRead(WriteSample(other))), all);
}

// A large file of zeros with a few bytes that are not, most of it holes.
std::filesystem::path WriteSparse(const TempFolder& folder, uint64_t bytes,
                                  const std::vector<uint64_t>& marks) {
  File file = Value(File::CreateNew(folder / "sparse"));
  RequireOk(file.Resize(bytes));
  for (const uint64_t mark : marks) {
    const auto value = ByteAt(mark);
    RequireOk(file.WriteAt(mark, {&value, 1}));
  }
  return folder / "sparse";
}

TEST_CASE("a file larger than a window is seen everywhere, across the edges of windows too") {
  const TempFolder folder;
  constexpr uint64_t kBytes = 3 * kWindowBytes + 12345;
  const std::vector<uint64_t> marks = {0, kWindowBytes - 1, kWindowBytes, 2 * kWindowBytes + 77,
                                       kBytes - 1};
  const File file = Value(File::OpenForRead(WriteSparse(folder, kBytes, marks)));
  for (int round = 0; round < 2; ++round) {
    for (const uint64_t mark : marks) {
      const uint64_t first = mark < 2 ? 0 : mark - 2;
      const uint64_t bytes = std::min<uint64_t>(5, kBytes - first);
      std::byte seen{};
      RequireOk(file.VisitAt(first, bytes, [&](const std::byte* at) { seen = at[mark - first]; }));
      CHECK(seen == ByteAt(mark));
    }
    // All at once: as large as it has to be.
    size_t found = 0;
    RequireOk(file.VisitAt(0, kBytes, [&](const std::byte* at) {
      for (const uint64_t mark : marks) found += at[mark] == ByteAt(mark) ? 1 : 0;
    }));
    CHECK(found == marks.size());
  }
}

// No window that was mapped for one place has the next.
constexpr uint64_t kApart = 2 * kWindowBytes;

TEST_CASE("only so many windows are kept, and those of a closed file go") {
  const TempFolder folder;
  const uint64_t count = MostKeptWindows() + 3;
  const std::filesystem::path path = WriteSparse(folder, count * kApart, {});
  MappedWindows& windows = MappedWindows::OfProcess();
  const size_t before = windows.size();
  {
    const File file = Value(File::OpenForRead(path));
    for (uint64_t i = 0; i < count; ++i) {
      RequireOk(file.VisitAt(i * kApart, 1, [](const std::byte*) {}));
      CHECK(windows.size() <= MostKeptWindows());
    }
    CHECK(windows.size() == MostKeptWindows());
  }
  CHECK(windows.size() <= before);
}

// The stripes of a tensor that is stored input channel by input channel begin one after another,
// and each spans nearly all of it.
TEST_CASE("ranges that move on a little are in one window, however long they are") {
  const TempFolder folder;
  constexpr uint64_t kSpan = 3 * kWindowBytes;
  const File file =
      Value(File::OpenForRead(WriteSparse(folder, 2 * kSpan, {kWindowBytes / 2 + kSpan})));
  MappedWindows& windows = MappedWindows::OfProcess();
  const size_t before = windows.size();
  for (uint64_t offset = 0; offset <= kWindowBytes / 2; offset += 1 << 20) {
    RequireOk(file.VisitAt(offset, kSpan, [](const std::byte*) {}));
  }
  CHECK(windows.size() == std::min(before + 1, MostKeptWindows()));
}

// Columns are far apart; those of the next stripe lie a little further on, and all have one window.
TEST_CASE("columns of a large tensor share a window with those that come later") {
  const TempFolder folder;
  constexpr uint64_t kColumns = 3 * kWindowBytes;
  constexpr uint64_t kStride = kWindowBytes / 4;
  const uint64_t mark = 5 * kStride + 64;
  const File file = Value(File::OpenForRead(WriteSparse(folder, 2 * kColumns, {mark})));
  MappedWindows& windows = MappedWindows::OfProcess();
  const size_t before = windows.size();
  for (const uint64_t piece : {uint64_t{0}, uint64_t{4}, uint64_t{8}}) {
    for (uint64_t first = 0; first < 256; first += 64) {
      const ByteRuns runs{
          .offset = piece * kStride + first, .run_bytes = 64, .stride = kStride, .runs = 4};
      std::byte seen{};
      const auto look = [&](const std::byte* at) { seen = at[kStride]; };
      RequireOk(file.VisitRunsAt(runs, look));
      CHECK(seen == (runs.offset + kStride == mark ? ByteAt(mark) : std::byte{0}));
    }
  }
  CHECK(windows.size() == std::min(before + 1, MostKeptWindows()));
  const ByteRuns beyond{.offset = kColumns, .run_bytes = 64, .stride = kStride, .runs = 100};
  CheckError(file.VisitRunsAt(beyond, [](const std::byte*) {}), ErrorKind::kMalformed,
             "the file ended early");
  RequireOk(file.VisitRunsAt({}, [](const std::byte*) { FAIL("there are none"); }));
}

// Three levels of verify read all of a tensor, each piece by piece.
TEST_CASE("what is mapped together has one window for all visits, and is a hint alone") {
  const TempFolder folder;
  constexpr uint64_t kTensor = 5 * kWindowBytes;
  const File file = Value(File::OpenForRead(WriteSparse(folder, 2 * kTensor, {kTensor - 1})));
  MappedWindows& windows = MappedWindows::OfProcess();
  const size_t before = windows.size();
  file.MapTogether(0, kTensor);
  for (uint64_t offset = 0; offset < kTensor; offset += kWindowBytes / 2) {
    RequireOk(file.VisitAt(offset, kWindowBytes / 2, [](const std::byte*) {}));
  }
  std::byte seen{};
  RequireOk(file.VisitAt(kTensor - 1, 1, [&](const std::byte* at) { seen = *at; }));
  CHECK(seen == ByteAt(kTensor - 1));
  CHECK(windows.size() == std::min(before + 1, MostKeptWindows()));

  file.MapTogether(kTensor, kWindowBytes);              // one window anyway
  file.MapTogether(2 * kTensor - 1, 2 * kWindowBytes);  // not all there
  CHECK(windows.size() == std::min(before + 1, MostKeptWindows()));
  posix::SetFaultHook([](posix::Call call) { return call == posix::Call::kMap ? EACCES : 0; });
  file.MapTogether(kTensor, kTensor);
  posix::SetFaultHook(nullptr);
  CHECK(windows.size() == std::min(before + 1, MostKeptWindows()));
}

// A model of a kernel keeps a pointer to the weights. Others visited files meanwhile, its window
// went, and another one took its place in memory.
TEST_CASE("pinned bytes stay at their address, whatever windows come and go") {
  const TempFolder folder;
  const uint64_t count = MostKeptWindows() + 1;
  constexpr uint64_t kMark = kApart + 5;
  const File file = Value(File::OpenForRead(WriteSparse(folder, (count + 2) * kApart, {kMark})));
  const PinnedBytes pinned = Value(file.Pin(kMark - 1, 2));
  const std::byte* first = nullptr;
  RequireOk(pinned.Visit([&](std::span<const std::byte> bytes) {
    first = bytes.data();
    CHECK(bytes.size() == 2);
  }));
  for (uint64_t i = 2; i < count + 2; ++i) {
    RequireOk(file.VisitAt(i * kApart, 1, [](const std::byte*) {}));
  }
  RequireOk(pinned.Visit([&](std::span<const std::byte> bytes) {
    CHECK(bytes.data() == first);
    CHECK(bytes[0] == std::byte{0});
    CHECK(bytes[1] == ByteAt(kMark));
  }));
  RequireOk(Value(file.Pin(file.size(), 0)).Visit([](std::span<const std::byte> bytes) {
    CHECK(bytes.empty());
  }));
  CheckError(file.Pin(file.size(), 1).status(), ErrorKind::kMalformed, "the file ended early");
}

TEST_CASE("where the address space is full, windows are given up, and what is needed is mapped") {
  const TempFolder folder;
  const File file = Value(File::OpenForRead(WriteSparse(folder, 4 * kWindowBytes, {77})));
  RequireOk(file.VisitAt(2 * kWindowBytes, 1, [](const std::byte*) {}));
  static int refused = 0;
  refused = 0;
  posix::SetFaultHook(
      [](posix::Call call) { return call == posix::Call::kMap && refused++ == 0 ? ENOMEM : 0; });
  std::byte seen{};
  const Status status = file.VisitAt(77, 1, [&](const std::byte* at) { seen = *at; });
  posix::SetFaultHook(nullptr);
  RequireOk(status);
  CHECK(seen == ByteAt(77));
  CHECK(refused == 2);
  CHECK(MappedWindows::OfProcess().size() == 1);
}

TEST_CASE("a file that cannot be mapped is a system error") {
  const TempFolder folder;
  const File file = Value(File::OpenForRead(WriteSample(folder)));
  posix::SetFaultHook([](posix::Call call) { return call == posix::Call::kMap ? ENOMEM : 0; });
  std::vector<std::byte> out(16);
  const Status status =
      file.ReadRunsAt({.offset = 0, .run_bytes = 8, .stride = 16, .runs = 2}, out);
  posix::SetFaultHook(nullptr);
  CheckError(status, ErrorKind::kSystem, "cannot map it");
  CheckRuns(file, {.offset = 0, .run_bytes = 8, .stride = 16, .runs = 2});
}

}  // namespace
}  // namespace prepack::testing
