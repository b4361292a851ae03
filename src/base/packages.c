#include "base/packages.h"

#ifndef WB_HAVE_DNNL
#define WB_HAVE_DNNL 0
#endif
#ifndef WB_HAVE_ZLIB
#define WB_HAVE_ZLIB 0
#endif
#ifndef WB_HAVE_BSON
#define WB_HAVE_BSON 0
#endif
#ifndef WB_HAVE_ZIP
#define WB_HAVE_ZIP 0
#endif
#ifndef WB_HAVE_UTF8PROC
#define WB_HAVE_UTF8PROC 0
#endif

const wb__package wb__packages[WB__PACKAGES] = {
#define WB_PACKAGE(id, ...) {#id, __VA_ARGS__},
#include "base/packages.def"
};

bool wb__package_built(wb__package_id id)
{
    static const bool built[WB__PACKAGES] = {
        [WB__PACKAGE_ONEDNN] = WB_HAVE_DNNL, [WB__PACKAGE_ZLIB] = WB_HAVE_ZLIB,
        [WB__PACKAGE_BSON] = WB_HAVE_BSON, [WB__PACKAGE_ZIP] = WB_HAVE_ZIP,
        [WB__PACKAGE_UTF8PROC] = WB_HAVE_UTF8PROC};
    return built[id];
}

int wb__package_missing(wb__package_id id, const char *what, const char *reason)
{
    const wb__package *p = &wb__packages[id];
    if (!reason)
        return wb__fail(WB_ERROR_UNSUPPORTED, "%s: this Weber was built without %s, which is for "
                        "%s: install %s (Debian, Ubuntu) or %s (Homebrew) and build with "
                        "-DWEBER_%s=ON", what, p->name, p->purpose, p->debian, p->homebrew, p->id);
    return wb__fail(WB_ERROR_UNSUPPORTED, "%s: %s, which is for %s, was not found (%s); install %s "
                    "(Debian, Ubuntu) or %s (Homebrew); %s can name another file", what, p->name,
                    p->purpose, reason, p->debian, p->homebrew, p->variable);
}
