#include "prepack/doctor/python_packages.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/io/file.h"

namespace prepack {
namespace {

namespace fs = std::filesystem;

bool IsDirectory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::string VariableOf(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? std::string() : std::string(value);
}

// Of pyvenv.cfg: "home = /usr/bin".
std::map<std::string, std::string> VenvFields(const fs::path& prefix) {
  std::map<std::string, std::string> fields;
  std::ifstream in(prefix / "pyvenv.cfg");
  for (std::string line; std::getline(in, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string_view text = line;
    fields[std::string(Trimmed(text.substr(0, equals)))] = Trimmed(text.substr(equals + 1));
  }
  return fields;
}

// The folders of `python3.N` below a lib folder, the newest first.
std::vector<fs::path> VersionFolders(const fs::path& lib, const std::string& version) {
  std::vector<std::pair<int, fs::path>> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(lib, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("python3.")) continue;
    if (!version.empty() && name != "python" + version) continue;
    found.emplace_back(std::atoi(name.c_str() + 8), entry.path());
  }
  std::ranges::sort(found, std::greater{});
  std::vector<fs::path> folders;
  folders.reserve(found.size());
  for (auto& [minor, path] : found) folders.push_back(std::move(path));
  return folders;
}

void AddFolder(fs::path folder, PythonEnvironment& environment) {
  if (IsDirectory(folder) && std::ranges::count(environment.folders, folder) == 0) {
    environment.folders.push_back(std::move(folder));
  }
}

// `version` is "3.11"; empty: whatever is there.
void AddPrefix(const fs::path& prefix, const std::string& version, PythonEnvironment& environment) {
  for (const char* lib : {"lib", "lib64"}) {
    for (const fs::path& folder : VersionFolders(prefix / lib, version)) {
      AddFolder(folder / "site-packages", environment);
      AddFolder(folder / "dist-packages", environment);
    }
  }
  AddFolder(prefix / "lib/python3/dist-packages", environment);  // Debian's own
}

// "3.11" of "3.11.2".
std::string MinorVersion(const std::string& version) {
  const size_t first = version.find('.');
  if (first == std::string::npos) return {};
  return version.substr(0, version.find('.', first + 1));
}

// The version in the name of a program, /usr/bin/python3.11.
std::string VersionOfProgram(const fs::path& program) {
  std::error_code error;
  const fs::path real = fs::canonical(program, error);
  const std::string name = real.filename().string();
  return !error && name.starts_with("python3.") ? name.substr(6) : std::string();
}

void AddPackages(PythonEnvironment& environment) {
  constexpr std::string_view kEnd = ".dist-info";
  for (const fs::path& folder : environment.folders) {
    const Result<std::vector<std::string>> names = NamesIn(folder);
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      if (!name.ends_with(kEnd)) continue;
      const std::string stem = name.substr(0, name.size() - kEnd.size());
      const size_t dash = stem.find('-');
      if (dash == std::string::npos) continue;
      environment.packages.try_emplace(NormalPackageName(stem.substr(0, dash)),
                                       Printable(stem.substr(dash + 1)));
    }
  }
}

PythonEnvironment EnvironmentIn(const fs::path& prefix, const fs::path& program) {
  PythonEnvironment environment{.prefix = prefix, .folders = {}, .packages = {}};
  const std::map<std::string, std::string> venv = VenvFields(prefix);
  const auto field = [&](const char* name) {
    const auto it = venv.find(name);
    return it == venv.end() ? std::string() : it->second;
  };
  std::string version = MinorVersion(field(venv.contains("version") ? "version" : "version_info"));
  if (version.empty()) version = VersionOfProgram(program);
  AddPrefix(prefix, version, environment);
  const bool with_system = field("include-system-site-packages") == "true";
  fs::path base = prefix;
  if (with_system) {
    base = fs::path(field("home")).parent_path();
    AddPrefix(base / "local", version, environment);
    AddPrefix(base, version, environment);
  } else if (venv.empty()) {
    if (const std::string home = VariableOf("HOME"); !home.empty() && prefix == "/usr") {
      AddPrefix(fs::path(home) / ".local", version, environment);
    }
    AddPrefix(prefix / "local", version, environment);
  }
  AddPackages(environment);
  return environment;
}

// The program that a shell would start.
fs::path InPath(const std::string& name) {
  std::istringstream folders(VariableOf("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty() && IsFile(fs::path(folder) / name)) return fs::path(folder) / name;
  }
  return {};
}

// pyenv's programs are scripts that start the version it was told to use: the interpreter, or
// nothing when there is no telling.
fs::path BehindPyenv(const fs::path& program) {
  const fs::path root = program.parent_path().parent_path();
  std::string version = VariableOf("PYENV_VERSION");
  if (version.empty()) {
    std::ifstream in(root / "version");
    std::getline(in, version);
  }
  version = version.substr(0, version.find(':'));
  const fs::path behind = root / "versions" / version / "bin/python3";
  return !version.empty() && IsFile(behind) ? behind : fs::path();
}

// Of PREFIX/bin/python3. A link from another folder to an interpreter counts as that interpreter,
// as Python itself has it, unless it belongs to a virtual environment.
PythonEnvironment EnvironmentOf(const fs::path& program) {
  std::error_code error;
  if (program.parent_path().filename() == "shims") {
    const fs::path behind = BehindPyenv(program);
    if (!behind.empty()) return EnvironmentOf(behind);
  }
  const fs::path own = fs::absolute(program, error).lexically_normal().parent_path().parent_path();
  if (IsFile(own / "pyvenv.cfg")) return EnvironmentIn(own, program);
  const fs::path real = fs::canonical(program, error);
  return EnvironmentIn(error ? own : real.parent_path().parent_path(), program);
}

}  // namespace

std::string PythonEnvironment::VersionOf(std::string_view package) const {
  const auto it = packages.find(package);
  return it == packages.end() ? std::string() : it->second;
}

std::string NormalPackageName(std::string_view name) {
  std::string normal;
  for (const char c : name) {
    const bool separates = c == '-' || c == '_' || c == '.';
    if (separates && !normal.empty() && normal.back() == '-') continue;
    normal += separates ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return normal;
}

Result<std::optional<PythonEnvironment>> FindPython(const fs::path& python) {
  using Found = std::optional<PythonEnvironment>;
  if (!python.empty()) {
    if (IsFile(python)) return Found(EnvironmentOf(python));
    if (!python.has_parent_path() && IsFile(InPath(python.string()))) {
      return Found(EnvironmentOf(InPath(python.string())));
    }
    if (IsFile(python / "bin/python3")) return Found(EnvironmentIn(python, python / "bin/python3"));
    return Usage("--python", "there is no Python environment")
        .Found(Printable(python.string()))
        .Expected("a Python program, or the folder of an environment with bin/python3");
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const fs::path prefix = VariableOf(variable);
    if (!prefix.empty() && IsDirectory(prefix)) {
      return Found(EnvironmentIn(prefix, prefix / "bin/python3"));
    }
  }
  const fs::path program = InPath("python3");
  if (program.empty()) return Found();
  return Found(EnvironmentOf(program));
}

}  // namespace prepack
