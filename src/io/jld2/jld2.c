/* Reads JLD2 files.  A named tuple, a tuple or a struct is a compound type with a member for each
 * field: an array is a reference to a dataset, a struct of more than 1 KiB too, a smaller one is a
 * compound inside.  Fields of types without data, such as () and nothing, have no member.  The
 * members of a tuple are named "1", "2", ... The dimensions of a dataset are Julia's, reversed.
 *
 * A dot in a name becomes _, as in BSON files, since dots separate the parts of a path.
 *
 * The bytes of all arrays together are at most those of the file and the limit of
 * wb_set_unpack_limit: datasets may be compressed, and several references may lead to one.  So the
 * parts are counted too, and the file is visited before its values are read. */
#include "io/jld2/jld2.h"

#include "base/files/file.h"
#include "base/mutex.h"
#include "engine/tensor.h"
#include "io/flux/read.h"
#include "io/jld2/hdf5.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    JLD2_DEEPEST = 64, VISITS = 1 << 17, JLD2_LEAST_VISITS = 1 << 12, MOST_LINKS = 1 << 14,
    JLD2_MOST_BYTES = 1 << 20
};

static wb__mutex jld2_lock = WB__MUTEX_INIT;   /* guards all calls of libhdf5 */

/* A file while it is read. */
typedef struct {
    const wb__hdf5 *h;          /* the functions of libhdf5 */
    wb__mapping *m;             /* the file */
    bool values;                /* the values are read, not only the sizes */
    wb__table *out;
    const char *variable;       /* name of the variable, if paths do not begin with it */
    int64_t file, bytes, takes; /* identifier; bytes of elements so far; bytes of names and objects
                                   so far */
    int visits, depth;          /* parts visited so far; depth of the present part */
    char path[1024];
} jld2_reading;

bool wb__jld2_is(const wb__mapping *m)
{
    static const uint8_t signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    for (int64_t at = 0; at <= 4096 && at + 8 <= m->bytes; at = at ? 2 * at : 512)
        if (!memcmp(m->data + at, signature, sizeof signature)) return true;
    return false;
}

static int jld2_fail(const jld2_reading *r, const char *what)
{
    const char *path = *r->path || !r->variable ? r->path : r->variable;
    return wb__fail(WB_ERROR_FORMAT, "%s: \"%.200s\": %s", r->m->path, path, what);
}

/* Appends a name to r->path.  False, with the error set: the path is too long, or the part is
 * nested too deep.  An empty name changes only the depth. */
static bool jld2_enter(jld2_reading *r, const char *name, size_t *back)
{
    *back = strlen(r->path);
    const size_t room = sizeof r->path - *back, n = strlen(name) + 1;
    if (r->depth >= JLD2_DEEPEST || n >= room)
        return !jld2_fail(r, "its parts are nested too deep, or their names are too long");
    /* a file has at most one part for 4 of its bytes, which are half a reference */
    if (++r->visits > WB__MIN(VISITS, r->m->bytes / 4 + JLD2_LEAST_VISITS))
        return !jld2_fail(r, "it refers to the same parts so often that they unfold to many times "
                          "the file, or has too many parts");
    if (*name) snprintf(r->path + *back, room, "%s%s", *back ? "." : "", name);
    for (char *c = r->path + *back + (*back > 0); *c; c++)
        if (*c == '.') *c = '_';
    r->depth++;
    return true;
}

static void jld2_leave(jld2_reading *r, size_t back)
{
    r->path[back] = 0;
    r->depth--;
}

/* Whether the first two members of a type are named a and b. */
static bool jld2_has_names(const wb__hdf5 *h, int64_t type, const char *a, const char *b)
{
    const char *const want[2] = {a, b};
    bool same = h->H5Tget_nmembers(type) == 2;
    for (unsigned i = 0; same && i < 2; i++) {
        char *name = h->H5Tget_member_name(type, i);
        same = name && !strcmp(name, want[i]);
        if (name) h->H5free_memory(name);
    }
    return same;
}

/* Whether an enum is a bool of h5py: FALSE = 0 and TRUE = 1, in a byte. */
static bool jld2_is_bool(const wb__hdf5 *h, int64_t type)
{
    uint8_t no = 1, yes = 0;
    return h->H5Tget_size(type) == 1 && jld2_has_names(h, type, "FALSE", "TRUE") &&
           h->H5Tget_member_value(type, 0, &no) >= 0 && !no &&
           h->H5Tget_member_value(type, 1, &yes) >= 0 && yes == 1;
}

/* Returns the dtype of the elements of a type that is no number of HDF5; 0 if Weber lacks the
 * dtype.  Writes the name of the type.  A complex number is a compound of re and im for JLD2, of r
 * and i for h5py. */
static wb_dtype other_dtype(const wb__hdf5 *h, int64_t type, int class, char *name, size_t room)
{
    const bool flag = class == WB__H5T_ENUM && jld2_is_bool(h, type);
    const bool pair = class == WB__H5T_COMPOUND &&
                      (jld2_has_names(h, type, "re", "im") || jld2_has_names(h, type, "r", "i"));
    const char *kind = flag ? "Bool" : class == WB__H5T_ENUM ? "Enum" : pair ? "Complex"
                       : class == WB__H5T_COMPOUND ? "Struct" : NULL;
    if (kind) snprintf(name, room, "%s", kind);
    else snprintf(name, room, "HDF5 class %d", class);
    return flag ? WB_BOOL : 0;
}

/* Returns the dtype of the elements of a type; 0 if Weber lacks it.  Writes the name of the
 * type. */
static wb_dtype jld2_dtype_of(const wb__hdf5 *h, int64_t type, char *name, size_t room,
                              wb__narrow_int *narrow)
{
    static const struct {
        size_t size, sign, exponent, bits, mantissa;
        wb_dtype dtype;
    } floats[] = {
        {2, 15, 10, 5, 10, WB_F16}, {2, 15, 7, 8, 7, WB_BF16}, {4, 31, 23, 8, 23, WB_F32},
        {8, 63, 52, 11, 52, WB_F64}};
    const int class = h->H5Tget_class(type);
    const size_t size = h->H5Tget_size(type);
    const bool little = size == 1 || h->H5Tget_order(type) == 0;
    const bool is_signed = class == WB__H5T_INTEGER && h->H5Tget_sign(type) > 0;
    size_t sign, exponent, bits, place, mantissa;
    if (class != WB__H5T_INTEGER && class != WB__H5T_FLOAT && class != WB__H5T_BITFIELD)
        return other_dtype(h, type, class, name, room);
    const char *kind = class == WB__H5T_FLOAT ? "Float" : class == WB__H5T_BITFIELD ? "Bits"
                       : is_signed ? "Int" : "UInt";
    snprintf(name, room, "%s%d%s", kind, (int)WB__MIN(size, 9999) * 8, little ? "" : " big");
    if (!little || h->H5Tget_precision(type) != 8 * size) return 0;
    if (class == WB__H5T_BITFIELD) return size == 1 ? WB_BOOL : 0;
    if (class == WB__H5T_INTEGER && (size == 2 || (size == 4 && !is_signed)))
        return *narrow = size == 4 ? WB__NARROW_U32 : is_signed ? WB__NARROW_I16 : WB__NARROW_U16,
               wb__narrow_dtype(*narrow);
    if (class == WB__H5T_INTEGER)
        return size == 1 ? (is_signed ? WB_I8 : WB_U8)
               : !is_signed ? 0 : size == 4 ? WB_I32 : size == 8 ? WB_I64 : 0;
    if (h->H5Tget_fields(type, &sign, &exponent, &bits, &place, &mantissa) < 0) return 0;
    for (size_t i = 0; i < WB__COUNT(floats); i++)
        if (size == floats[i].size && sign == floats[i].sign && exponent == floats[i].exponent &&
            bits == floats[i].bits && !place && mantissa == floats[i].mantissa)
            return floats[i].dtype;
    return 0;
}

/* Whether the values of a dataset are in this file, not in another one. */
static bool jld2_is_in_file(const jld2_reading *r, int64_t set)
{
    const int64_t made = r->h->H5Dget_create_plist(set);
    const bool here = made >= 0 && r->h->H5Pget_external_count(made) == 0 &&
                      r->h->H5Pget_layout(made) != WB__H5D_VIRTUAL;
    if (made >= 0) r->h->H5Pclose(made);
    return here || !jld2_fail(r, "its values are in another file");
}

/* Sets the sizes of an array from its space.  Returns 0 or an error code. */
static int jld2_sizes_of(jld2_reading *r, int64_t space, wb__jl_array *a)
{
    uint64_t dims[32];
    const int ndim = r->h->H5Sget_simple_extent_ndims(space);
    if (ndim < 0 || ndim > 32 || r->h->H5Sget_simple_extent_dims(space, dims, NULL) < 0)
        return jld2_fail(r, "its sizes are not readable");
    a->axes = ndim;
    if (ndim > WB_MAX_DIMS) return a->dtype = 0;
    a->ndim = ndim;
    for (int i = 0; i < a->ndim; i++) a->dims[i] = dims[i] > INT64_MAX ? -1 : (int64_t)dims[i];
    return wb__check_dims(r->path, a->ndim, a->dims, &a->count) ? 0 : (int)wb_error_code();
}

/* Reads a dataset of numbers into *a.  *block has its values, which the caller frees. */
static int jld2_read_array(jld2_reading *r, int64_t set, int64_t type, int64_t space,
                           wb__jl_array *a, void **block)
{
    *block = NULL;
    *a = (wb__jl_array){.ndim = 0};
    a->dtype = jld2_dtype_of(r->h, type, a->type, sizeof a->type, &a->narrow);
    int status = jld2_sizes_of(r, space, a);
    if (status || !a->dtype) return status;
    const int64_t each = (int64_t)wb_dtype_bytes(a->dtype);
    const int64_t names = WB__MAX(r->takes - WB__TENSORS_TIMES * r->m->bytes, 0);
    const int64_t limit = r->m->bytes + wb__unpack_limit() - names;
    a->bytes = a->count > INT64_MAX / each ? INT64_MAX : a->count * each;
    if (a->bytes > limit - r->bytes)
        return wb__fail(WB_ERROR_FORMAT, "%s: its arrays have more than %lld bytes beyond those of "
                        "the file: the limit of wb_set_unpack_limit", r->m->path,
                        (long long)wb__unpack_limit());
    r->bytes += a->bytes;
    if (!jld2_is_in_file(r, set)) return wb_error_code();
    if (!r->values || !a->bytes) return 0;
    if (!(*block = wb__alloc_aligned((size_t)a->bytes))) return WB_ERROR_MEMORY;
    memset(*block, 0, (size_t)a->bytes);
    a->data = *block;
    /* narrow integers are read into the end of the block, and widened from its beginning on */
    char *from = (char *)*block;
    if (a->narrow) from += a->bytes - a->count * wb__narrow_bytes(a->narrow);
    const bool read = r->h->H5Dread(set, type, 0, 0, 0, from) >= 0;
    if (a->narrow) wb__widen_ints(*block, from, a->count, a->narrow);
    int64_t bad = read && a->dtype == WB_BOOL ? a->bytes : 0;
    while (bad && a->data[bad - 1] <= 1) bad--;
    if (read && !bad) return 0;
    wb__free(*block);
    *block = NULL;
    return jld2_fail(r,
                     read ? "a bool in it is neither 0 nor 1"
                          : "its values are damaged, or compressed by a filter that libhdf5 lacks");
}

/* Adds an entry, which takes over the block. */
static int jld2_add(jld2_reading *r, wb__jl_array *a, void *block, const wb__flux_field *field)
{
    const wb__flux_field_kind kind = field ? field->kind : WB__FIELD_NONE;
    const bool state = kind == WB__FIELD_STATE || kind == WB__FIELD_STATES;
    if (state && block && wb__jl_zero(a)) return wb__free(block), 0;
    if (kind >= WB__FIELD_MATRIX && kind <= WB__FIELD_LAST_GATE) wb__jl_transpose(a);
    if (state && a->ndim == 2 && a->dims[0] == 1) {
        a->ndim = 1;
        a->dims[0] = a->dims[1];
    }
    wb__entry *e = wb__table_add(r->out, *r->path ? r->path : r->variable);
    if (!e) return wb__free(block), WB_ERROR_MEMORY;
    r->takes += WB__TENSOR_TAKES + (int64_t)strlen(e->name);
    e->axes = a->axes;
    e->dtype = a->dtype;
    snprintf(e->type, sizeof e->type, "%s", a->type);
    e->ndim = a->ndim;
    memcpy(e->dims, a->dims, sizeof e->dims);
    e->bytes = a->bytes;
    e->data = block;
    e->owned = block != NULL;
    e->transposed = a->transposed && a->count > 0;
    if (a->ndim >= 3 && kind >= WB__FIELD_KERNEL && kind <= WB__FIELD_DEPTHWISE)
        e->flip = kind == WB__FIELD_KERNEL ? WB__FLIP_NO : WB__FLIP_YES;
    return 0;
}

static int jld2_visit_object(jld2_reading *r, int64_t object, const wb__flux_field *field);

/* Returns a compound type of those members of `type` that are read, at the same offsets; -1 if
 * there are none.  The caller closes it. */
static int64_t members_of(const wb__hdf5 *h, int64_t type, int depth)
{
    int64_t found = -1;
    const int n = h->H5Tget_nmembers(type);
    for (int i = 0; i < n && depth < JLD2_DEEPEST; i++) {
        const int64_t member = h->H5Tget_member_type(type, (unsigned)i);
        const int class = member < 0 ? -1 : h->H5Tget_class(member);
        const int64_t inner = class == WB__H5T_COMPOUND ? members_of(h, member, depth + 1) : -1;
        if (inner >= 0 || class == WB__H5T_REFERENCE) {
            char *name = h->H5Tget_member_name(type, (unsigned)i);
            if (found < 0) found = h->H5Tcreate(WB__H5T_COMPOUND, h->H5Tget_size(type));
            if (name && found >= 0)
                h->H5Tinsert(found, name, h->H5Tget_member_offset(type, (unsigned)i),
                             inner >= 0 ? inner : member);
            if (name) h->H5free_memory(name);
        }
        if (inner >= 0) h->H5Tclose(inner);
        if (member >= 0) h->H5Tclose(member);
    }
    return found;
}

/* What the names of all members of a compound type show of its layer. */
typedef struct { const char *like; bool numbered, recurrent; } jld2_outline;

/* Returns what the members show.  A field of a type without data has no member, such as the
 * activation of a Dense, or the scale of a norm without one.  So a bias and no stride make a Dense,
 * and `track_stats` makes a norm. */
static jld2_outline jld2_outline_of(const wb__hdf5 *h, int64_t type)
{
    jld2_outline o = {.numbered = true};
    unsigned marks = 0;
    bool bias = false, stride = false;
    const int n = h->H5Tget_nmembers(type);
    for (int i = 0; i < n; i++) {
        char *name = h->H5Tget_member_name(type, (unsigned)i);
        if (!name) continue;
        marks |= wb__flux_mark(name);
        bias |= !strcmp(name, "bias");
        stride |= !strcmp(name, "stride");
        o.recurrent |= !strcmp(name, "cell");
        if (!strcmp(name, "track_stats")) marks |= wb__flux_mark("γ") | wb__flux_mark("β");
        o.numbered &= *name && strspn(name, "0123456789") == strlen(name) && strlen(name) < 9;
        h->H5free_memory(name);
    }
    if (bias && !stride) marks |= wb__flux_mark("σ");
    o.like = wb__flux_like(marks);
    return o;
}

/* The two weights of a GRUv3 that become one. */
typedef struct { wb__jl_array a[2]; void *block[2]; bool has[2]; } jld2_gates;

/* Visits the object of a reference; a weight of a GRUv3 is kept in *g instead. */
static int jld2_follow(jld2_reading *r, const uint8_t *at, const wb__flux_field *field,
                       jld2_gates *g)
{
    static const uint8_t none[8] = {0}, undefined[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    if (!memcmp(at, none, 8) || !memcmp(at, undefined, 8)) return 0;
    const int64_t object = r->h->H5Rdereference2(r->file, 0, WB__H5R_OBJECT, at);
    if (object < 0) return jld2_fail(r, "a reference leads nowhere");
    const wb__flux_field_kind kind = field ? field->kind : WB__FIELD_NONE;
    const bool gate = kind == WB__FIELD_GATES || kind == WB__FIELD_LAST_GATE;
    int status = 0;
    if (gate && g && r->h->H5Iget_type(object) == WB__H5I_DATASET) {
        const int i = kind == WB__FIELD_LAST_GATE;
        const int64_t type = r->h->H5Dget_type(object), space = r->h->H5Dget_space(object);
        if (type < 0 || space < 0) status = jld2_fail(r, "its type is not readable");
        else if (!g->has[i])
            status = jld2_read_array(r, object, type, space, &g->a[i], &g->block[i]);
        g->has[i] = true;
        if (type >= 0) r->h->H5Tclose(type);
        if (space >= 0) r->h->H5Sclose(space);
    } else {
        status = jld2_visit_object(r, object, field);
    }
    r->h->H5Oclose(object);
    return status;
}

/* Adds the joined weights of a GRUv3, if the compound type had both. */
static int jld2_add_gates(jld2_reading *r, jld2_gates *g)
{
    if (!g->has[0] || !g->has[1]) return 0;
    size_t back;
    if (!jld2_enter(r, "weight_hidden", &back)) return wb_error_code();
    wb__jl_array whole;
    void *made = NULL;
    wb__flux_reader *reader = wb__alloc_zero(1, sizeof *reader);
    int status = reader ? 0 : WB_ERROR_MEMORY;
    for (int i = 0; i < 2; i++) wb__jl_transpose(&g->a[i]);
    const bool filled = g->block[0] && g->block[1];
    if (!status && filled && !wb__flux_join_gates(reader, &g->a[0], &g->a[1], &whole, &made))
        status = reader->f.status ? reader->f.status
                                  : jld2_fail(r, "its weights do not go together");
    if (!status && !filled) {
        whole = g->a[1];
        whole.dims[0] *= 3;
        whole.bytes *= 3;
        whole.transposed = false;
        if (!g->a[0].dtype) {
            whole.dtype = 0;
            memcpy(whole.type, g->a[0].type, sizeof whole.type);
        }
    }
    wb__free(reader);
    if (!status) status = jld2_add(r, &whole, made, NULL);
    jld2_leave(r, back);
    return status;
}

static int jld2_visit_compound(jld2_reading *r, int64_t type, const uint8_t *at, size_t room);

/* Reads member i of a compound type, and adds its arrays. */
static int jld2_visit_member(jld2_reading *r, int64_t type, int i, const char *name,
                             const jld2_outline *o, const uint8_t *at, size_t room, jld2_gates *g)
{
    const wb__hdf5 *h = r->h;
    const wb__flux_field *field = wb__flux_child_field(o->like, name);
    const size_t offset = h->H5Tget_member_offset(type, (unsigned)i);
    const bool inside = !strcmp(name, "cell") || (field && field->kind == WB__FIELD_AFFINE);
    char number[16];
    size_t back;
    if (o->recurrent && (!strcmp(name, "init") || !strcmp(name, "state"))) return 0;
    snprintf(number, sizeof number, "%d", atoi(name) - 1);
    const char *own = inside ? "" : field ? field->weber : o->numbered ? number : name;
    const int64_t member = h->H5Tget_member_type(type, (unsigned)i);
    const size_t size = member < 0 ? 0 : h->H5Tget_size(member);
    const int class = member < 0 ? -1 : h->H5Tget_class(member);
    const bool fits = size <= room && offset <= room - size;
    int status = 0;
    if (fits && (class == WB__H5T_COMPOUND || (class == WB__H5T_REFERENCE && size == 8))) {
        if (!jld2_enter(r, own, &back)) status = wb_error_code();
        else {
            status = class == WB__H5T_COMPOUND ? jld2_visit_compound(r, member, at + offset, size)
                                               : jld2_follow(r, at + offset, field, g);
            jld2_leave(r, back);
        }
    }
    if (member >= 0) h->H5Tclose(member);
    return status;
}

/* Visits the members of a compound type.  Its value is the `room` bytes at `at`. */
static int jld2_visit_compound(jld2_reading *r, int64_t type, const uint8_t *at, size_t room)
{
    const jld2_outline o = jld2_outline_of(r->h, type);
    const int n = r->h->H5Tget_nmembers(type);
    jld2_gates g = {.has = {false, false}};
    int status = 0;
    for (int i = 0; !status && i < n; i++) {
        char *name = r->h->H5Tget_member_name(type, (unsigned)i);
        if (!name) status = jld2_fail(r, "a name is not readable");
        else status = jld2_visit_member(r, type, i, name, &o, at, room, &g);
        if (name) r->h->H5free_memory(name);
    }
    if (!status) status = jld2_add_gates(r, &g);
    for (int i = 0; i < 2; i++) wb__free(g.block[i]);
    return status;
}

/* Reads a value of a compound type, and adds its arrays. */
static int jld2_read_compound(jld2_reading *r, int64_t set, int64_t type)
{
    const size_t size = r->h->H5Tget_size(type);
    if (!size || size > JLD2_MOST_BYTES) return jld2_fail(r, "its struct has an impossible size");
    const int64_t wanted = members_of(r->h, type, 0);
    if (wanted < 0) return 0;                   /* it has no arrays */
    uint8_t *at = wb__alloc_zero(1, size);
    int status = at ? 0 : WB_ERROR_MEMORY;
    if (!status && (!jld2_is_in_file(r, set) || r->h->H5Dread(set, wanted, 0, 0, 0, at) < 0))
        status = wb_error_code() ? (int)wb_error_code()
                                 : jld2_fail(r, "its fields are not readable");
    if (!status) status = jld2_visit_compound(r, type, at, size);
    wb__free(at);
    r->h->H5Tclose(wanted);
    return status;
}

/* Reads a list of references, and adds their arrays. */
static int jld2_read_list(jld2_reading *r, int64_t set, int64_t type, int64_t space)
{
    wb__jl_array a = {0};
    int status = jld2_sizes_of(r, space, &a);
    if (status) return status;
    if (a.count > VISITS || r->h->H5Tget_size(type) != 8)
        return jld2_fail(r, "its list is too long");
    uint8_t *at = wb__alloc_zero((size_t)a.count + 1, 8);
    if (!at) return WB_ERROR_MEMORY;
    if (!jld2_is_in_file(r, set)) status = wb_error_code();
    else if (r->h->H5Dread(set, type, 0, 0, 0, at) < 0)
        status = jld2_fail(r, "its list is not readable");
    for (int64_t i = 0; !status && i < a.count; i++) {
        char number[24];
        size_t back;
        snprintf(number, sizeof number, "%lld", (long long)i);
        if (!jld2_enter(r, number, &back)) status = wb_error_code();
        else {
            status = jld2_follow(r, at + 8 * i, NULL, NULL);
            jld2_leave(r, back);
        }
    }
    wb__free(at);
    return status;
}

/* ---- objects --------------------------------------------------------------------------------- */

static int jld2_visit_set(jld2_reading *r, int64_t set, int64_t type, int64_t space,
                          const wb__flux_field *field)
{
    const int class = r->h->H5Tget_class(type);
    const int extent = r->h->H5Sget_simple_extent_type(space);
    const bool one = extent == WB__H5S_SCALAR, many = extent == WB__H5S_SIMPLE;
    if (class == WB__H5T_COMPOUND && one) return jld2_read_compound(r, set, type);
    if (class == WB__H5T_REFERENCE && (one || many)) return jld2_read_list(r, set, type, space);
    /* single numbers and texts are left out */
    if (!many || class == WB__H5T_STRING || class == WB__H5T_VLEN) return 0;
    wb__jl_array a;
    void *block;
    const int status = jld2_read_array(r, set, type, space, &a, &block);
    return status ? status : jld2_add(r, &a, block, field);
}

static int jld2_visit_group(jld2_reading *r, int64_t group);

static int jld2_visit_object(jld2_reading *r, int64_t object, const wb__flux_field *field)
{
    const int kind = r->h->H5Iget_type(object);
    if (r->depth >= JLD2_DEEPEST) return jld2_fail(r, "its parts are nested too deep");
    if (kind == WB__H5I_GROUP) return jld2_visit_group(r, object);
    if (kind != WB__H5I_DATASET) return 0;
    const int64_t type = r->h->H5Dget_type(object), space = r->h->H5Dget_space(object);
    int status = type < 0 || space < 0 ? jld2_fail(r, "its type is not readable")
                                       : jld2_visit_set(r, object, type, space, field);
    if (type >= 0) r->h->H5Tclose(type);
    if (space >= 0) r->h->H5Sclose(space);
    return status;
}

/* Visits an object in a group.  With `inside` the object's name is not added to the path. */
static int jld2_visit_link(jld2_reading *r, int64_t group, const char *name, bool inside)
{
    size_t back;
    if (!jld2_enter(r, inside ? "" : name, &back)) return wb_error_code();
    const int64_t object = r->h->H5Oopen(group, name, r->h->link_access);
    int status = object < 0 ? jld2_fail(r, "it is not readable, or a link to another file")
                            : jld2_visit_object(r, object, NULL);
    if (object >= 0) r->h->H5Oclose(object);
    jld2_leave(r, back);
    return status;
}

/* Sets `name` to the name of link i of a group.  Returns 0 or an error code. */
static int jld2_link_name(const jld2_reading *r, int64_t group, uint64_t i, char *name, size_t room)
{
    const ptrdiff_t n = r->h->H5Lget_name_by_idx(group, ".", 0, 0, i, name, room, 0);
    return n > 0 && (size_t)n < room ? 0 : jld2_fail(r, "a name in it is not readable");
}

static int jld2_visit_group(jld2_reading *r, int64_t group)
{
    wb__hdf5_group info = {0};
    char name[512];
    if (r->h->H5Gget_info(group, &info) < 0 || info.links > MOST_LINKS)
        return jld2_fail(r, "it is no readable group");
    int status = 0;
    for (uint64_t i = 0; !status && i < info.links; i++) {
        status = jld2_link_name(r, group, i, name, sizeof name);
        if (!status && strcmp(name, "_types")) status = jld2_visit_link(r, group, name, false);
    }
    return status;
}

/* Visits the variable `key`, or without a key the preferred one (jld2.h). */
static int jld2_visit_file(jld2_reading *r, const char *key)
{
    wb__hdf5_group info = {0};
    char name[512], only[512] = "", known[400] = "";
    bool found = false, state = false, model = false;
    int n = 0, status = 0;
    size_t used = 0;
    if (r->h->H5Gget_info(r->file, &info) < 0 || info.links > MOST_LINKS)
        return jld2_fail(r, "it is no readable file");
    for (uint64_t i = 0; !status && i < info.links; i++) {
        status = jld2_link_name(r, r->file, i, name, sizeof name);
        if (status || !strcmp(name, "_types")) continue;
        found |= key && !strcmp(name, key);
        state |= !strcmp(name, "model_state");
        model |= !strcmp(name, "model");
        if (!n++) snprintf(only, sizeof only, "%s", name);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, n > 1 ? ", %s" : "%s",
                                     name);
    }
    if (status) return status;
    if (key && !found)
        return wb__fail(WB_ERROR_FORMAT, "%s: no variable is named \"%.100s\"; there are: %s",
                        r->m->path, key, n ? known : "none");
    const char *meant = key ? key : n == 1 ? only : state ? "model_state" : model ? "model" : NULL;
    r->variable = meant;
    status = meant ? jld2_visit_link(r, r->file, meant, true) : jld2_visit_group(r, r->file);
    r->variable = NULL;
    return status;
}

/* Visits the file without reading values, so that the memory of all its arrays is known and checked
 * before the first one is read. */
static int jld2_check_file(const jld2_reading *r, const char *key)
{
    wb__table table = {0};
    jld2_reading dry = *r;
    dry.values = false;
    dry.out = &table;
    const int status = jld2_visit_file(&dry, key);
    wb__table_free(&table);
    return status;
}

int wb__jld2_table(wb__mapping *m, const char *key, bool values, wb__table *out)
{
    jld2_reading r = {.m = m, .values = values, .out = out};
    *out = (wb__table){0};
    wb__mutex_lock(&jld2_lock);
    r.h = wb__hdf5_open(m->path);
    r.file = r.h ? r.h->H5Fopen(m->path, 0, 0) : -1;
    int status = !r.h ? (int)wb_error_code()
                 : r.file < 0 ? wb__fail(WB_ERROR_FORMAT, "%s: libhdf5 does not read it: no HDF5 "
                                         "file, or a damaged one", m->path)
                 : values ? jld2_check_file(&r, key) : 0;
    if (!status) status = jld2_visit_file(&r, key);
    if (r.file >= 0) r.h->H5Fclose(r.file);
    wb__mutex_unlock(&jld2_lock);
    if (!status) wb__table_sort(out);
    for (int i = 1; !status && i < out->n; i++)
        if (!strcmp(out->entries[i - 1].name, out->entries[i].name))
            status = wb__fail(WB_ERROR_FORMAT, "%s: two arrays are named \"%.200s\"; a dot in a"
                              " name becomes _ here: rename one of them in the file",
                              m->path, out->entries[i].name);
    if (status) wb__table_free(out);
    else out->mapping = m;
    return status;
}
