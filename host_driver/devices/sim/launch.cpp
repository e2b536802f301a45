// The program of a simulation: it runs the library beside it.

#include <dlfcn.h>

#include <cstdio>
#include <filesystem>

int main(int argc, char** argv) {
    const auto path = std::filesystem::read_symlink("/proc/self/exe").replace_extension(".so");
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
        reinterpret_cast<void (*)(int, char**)>(dlsym(library, "become_simulation"))(argc, argv);
    }
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
}
