// Runs a launch that gpu_tok.emulated wrote to a file, on buffers of exactly their size: replay FILE [RESULT]
//
// Linked with the kernels and built with a sanitizer, it shows an index one too far, a data race, undefined behaviour.
// RESULT gets the buffers after the launch, one after another.
//
//   FILE     "EMULAUN1"  i64: grid block seed buffers arguments name_bytes  name
//            for each buffer    i64: bytes, address modulo 256
//            for each argument  i64: buffer or -1, value or offset in the buffer
//            the bytes of all buffers
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#ifdef EMU_ASAN
extern "C" void __asan_poison_memory_region(const volatile void* address, size_t bytes);
#endif

extern "C" int emu_launch(void* kernel, const char* name, long long grid, long long block,
                          const unsigned long long* arguments, long long count, unsigned long long seed, char* message,
                          long long message_bytes);

using i64 = long long;
constexpr int BAD_FILE = 2, BAD_LAUNCH = 3;  // exit codes; the sanitizers have their own

[[noreturn]] static void give_up(const char* finding, int code) {
    std::fprintf(stderr, "replay: %s\n", finding);
    std::exit(code);
}

static void read(std::FILE* file, void* bytes, size_t count) {
    if (std::fread(bytes, 1, count, file) != count) give_up("the file ends too early", BAD_FILE);
}

struct Buffer {
    i64 bytes, phase;  // phase: the address modulo 256, kept so that alignment is as it was
    char* data;
};

static void allocate(Buffer& buffer) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, size_t(buffer.phase + buffer.bytes)) != 0) give_up("out of memory", BAD_FILE);
    buffer.data = static_cast<char*>(memory) + buffer.phase;
#ifdef EMU_ASAN
    __asan_poison_memory_region(memory, size_t(buffer.phase));
#endif
}

int main(int count, char** words) {
    if (count < 2) give_up("usage: replay FILE [RESULT]", BAD_FILE);
    std::FILE* file = std::fopen(words[1], "rb");
    if (file == nullptr) give_up("cannot open the file", BAD_FILE);
    char magic[8];
    read(file, magic, sizeof magic);
    if (std::memcmp(magic, "EMULAUN1", sizeof magic) != 0) give_up("not a dumped launch", BAD_FILE);
    struct {
        i64 grid, block, seed, buffers, arguments, name_bytes;
    } head;
    read(file, &head, sizeof head);
    std::string name(size_t(head.name_bytes), ' ');
    read(file, name.data(), name.size());
    std::vector<Buffer> buffers(static_cast<size_t>(head.buffers));
    for (Buffer& buffer : buffers) {
        read(file, &buffer, 16);
        allocate(buffer);
    }
    std::vector<unsigned long long> arguments;
    for (i64 i = 0; i < head.arguments; i++) {
        i64 pair[2];
        read(file, pair, sizeof pair);
        char* base = pair[0] < 0 ? nullptr : buffers[size_t(pair[0])].data;
        arguments.push_back(reinterpret_cast<unsigned long long>(base) + static_cast<unsigned long long>(pair[1]));
    }
    for (Buffer& buffer : buffers) read(file, buffer.data, size_t(buffer.bytes));
    std::fclose(file);

    void* kernel = dlsym(RTLD_DEFAULT, name.c_str());
    if (kernel == nullptr) give_up("no such kernel", BAD_FILE);
    char message[4096];
    if (emu_launch(kernel, name.c_str(), head.grid, head.block, arguments.data(), head.arguments,
                   static_cast<unsigned long long>(head.seed), message, sizeof message) != 0) {
        give_up(message, BAD_LAUNCH);
    }
    if (count > 2) {
        std::FILE* result = std::fopen(words[2], "wb");
        if (result == nullptr) give_up("cannot write the result", BAD_FILE);
        for (const Buffer& buffer : buffers) std::fwrite(buffer.data, 1, size_t(buffer.bytes), result);
        std::fclose(result);
    }
    return 0;
}
