// The same from C++17: the public headers, their initialisers and their handles must be usable as they are.
#include <spillway/spillway.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

static void must(int code)
{
    if (code != SPW_OK)
        throw std::runtime_error(spw_error_detail()->message);
}

struct release_buffer {
    void operator()(spw_buffer *buffer) const
    {
        spw_buffer_release(buffer);
    }
};

static void fill_and_check(spw_manager *manager)
{
    constexpr std::size_t bytes = std::size_t{1} << 20;
    spw_admit_options options;
    spw_admit_options_init(&options);
    options.tag = "consumer";
    spw_buffer *raw = nullptr;
    must(spw_admit(manager, bytes, &options, &raw));
    const std::unique_ptr<spw_buffer, release_buffer> buffer(raw);

    spw_view view{};
    must(spw_map(buffer.get(), SPW_HOST, SPW_MAP_READ | SPW_MAP_WRITE, nullptr, &view));
    std::memset(view.data, 7, bytes);
    must(spw_unmap(buffer.get(), &view, nullptr));
    must(spw_buffer_seal(buffer.get()));
    must(spw_map(buffer.get(), SPW_HOST, SPW_MAP_READ, nullptr, &view));
    const bool kept = view.size == bytes && static_cast<const unsigned char *>(view.data)[bytes - 1] == 7;
    must(spw_unmap(buffer.get(), &view, nullptr));
    if (!kept)
        throw std::runtime_error("the bytes differ");
}

int main()
{
    try {
        spw_options options;
        spw_options_init(&options);
        options.spec = "host=4M";
        spw_manager *manager = nullptr;
        must(spw_manager_create(&options, &manager));
        fill_and_check(manager);

        spw_stats stats{};
        stats.struct_size = sizeof(stats);
        must(spw_stats_snapshot(manager, &stats));
        if (stats.buffers != 0)
            throw std::runtime_error("a buffer is left");
        must(spw_manager_destroy(manager));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    std::puts("ok");
    return 0;
}
