#include "io/zip.h"

#ifdef WB_HAVE_ZIP

int wb__zip_fail(const wb__mapping *m, zip_error_t *e)
{
    if (zip_error_code_zip(e) == ZIP_ER_MEMORY)
        return wb__fail(WB_ERROR_MEMORY, "%s: libzip has no memory", m->path);
    return wb__fail(WB_ERROR_FORMAT, "%s: the archive is damaged (%s): copy or download it "
                    "again", m->path, zip_error_strerror(e));
}

zip_t *wb__zip_open(const wb__mapping *m)
{
    zip_error_t e;
    zip_error_init(&e);
    zip_source_t *source = zip_source_buffer_create(m->data, (zip_uint64_t)m->bytes, 0, &e);
    zip_t *zip = source ? zip_open_from_source(source, ZIP_RDONLY, &e) : NULL;
    if (!zip) wb__zip_fail(m, &e);
    if (source && !zip) zip_source_free(source);
    zip_error_fini(&e);
    return zip;
}

#endif
