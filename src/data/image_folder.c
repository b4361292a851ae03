/* A folder of images, one folder for each class, as a dataset.  The files are read when a batch
 * needs them. */
#include "data/dataset.h"

#include "base/files/file.h"
#include "base/options.h"
#include "base/os.h"
#include "io/image/image.h"

#include "weber/images.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A list of texts and their memory. */
typedef struct { int64_t n; int capacity; char **text; } image_folder_list;

/* The context of the dataset: the files of all classes. */
typedef struct {
    image_folder_list classes, files;   /* names of folders; paths of images */
    int32_t *label;                     /* label of each file */
    int64_t dims[3];                    /* [C, H, W] of all observations */
    bool resize, exif;                  /* scale images to dims; turn them by their Exif data */
} image_folder;

static int image_folder_list_add(image_folder_list *l, char *text)
{
    if (text && wb__reserve(&l->text, &l->capacity, (int)l->n + 1, sizeof *l->text))
        return l->text[l->n++] = text, 0;
    wb__free(text);
    return WB_ERROR_MEMORY;
}

static void image_folder_list_free(image_folder_list *l)
{
    for (int64_t i = 0; i < l->n; i++) wb__free(l->text[i]);
    wb__free(l->text);
}

static int image_folder_by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void image_folder_free(void *ctx)
{
    image_folder *f = ctx;
    image_folder_list_free(&f->classes);
    image_folder_list_free(&f->files);
    wb__free(f->label);
    wb__free(f);
}

/* ---- finding files --------------------------------------------------------------------------- */

typedef struct { const char *path; image_folder_list *found; bool folders; } image_folder_search;

static bool image_folder_is_image(const char *name)
{
    static const char *const ends[] = {".png", ".jpg", ".jpeg"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < WB__COUNT(ends); i++)
        if (!strcasecmp(dot, ends[i])) return true;
    return false;
}

/* Adds the name of a folder, or the path of an image, to the list.  Skips hidden names. */
static int image_folder_visit(const char *name, void *ctx)
{
    const image_folder_search *s = ctx;
    wb__os_about about;
    if (name[0] == '.' || (!s->folders && !image_folder_is_image(name))) return 0;
    char *path = wb__printf("%s/%s", s->path, name);
    if (!path) return WB_ERROR_MEMORY;
    const bool fits = wb__os_look(path, true, &about) &&
                      about.kind == (s->folders ? WB__OS_FOLDER : WB__OS_PLAIN);
    if (fits && !s->folders) return image_folder_list_add(s->found, path);
    wb__free(path);
    return fits ? image_folder_list_add(s->found, wb__strdup(name)) : 0;
}

static int image_folder_find(const char *path, bool folders, image_folder_list *found)
{
    const int64_t first = found->n;
    const int status = wb__folder_each(path, image_folder_visit, &(image_folder_search){path, found,
                                                                                        folders});
    if (!status && found->n > first)
        qsort(found->text + first, (size_t)(found->n - first), sizeof *found->text,
              image_folder_by_text);
    if (status || found->n > first) return status;
    return wb__fail(WB_ERROR_FILE, "%s: there is no %s in it", path,
                    folders ? "folder of a class" : ".png, .jpg or .jpeg file");
}

static int image_folder_find_all(const char *path, image_folder *f)
{
    int status = image_folder_find(path, true, &f->classes);
    for (int64_t k = 0; !status && k < f->classes.n; k++) {
        char *folder = wb__printf("%s/%s", path, f->classes.text[k]);
        const int64_t first = f->files.n;
        status = folder ? image_folder_find(folder, false, &f->files) : WB_ERROR_MEMORY;
        wb__free(folder);
        int32_t *label = status ? NULL : wb__realloc(f->label, (size_t)f->files.n * sizeof *label);
        if (!status && !label) status = WB_ERROR_MEMORY;
        if (label) f->label = label;
        for (int64_t i = first; !status && i < f->files.n; i++) f->label[i] = (int32_t)k;
    }
    return status;
}

/* ---- observations ---------------------------------------------------------------------------- */

/* Writes an image, as numbers from 0 to 1, to x. */
static int image_folder_write_image(const image_folder *f, const char *path, const uint8_t *planes,
                                    const int64_t dims[3], float *x)
{
    const int64_t n = dims[1] * dims[2], m = f->dims[1] * f->dims[2];
    const bool same = dims[1] == f->dims[1] && dims[2] == f->dims[2];
    if (!same && !f->resize)
        return wb__fail(WB_ERROR_SHAPE, "%s: the image is %lld x %lld, but the first one %lld x "
                        "%lld: give .height and .width", path, (long long)dims[1],
                        (long long)dims[2], (long long)f->dims[1], (long long)f->dims[2]);
    float *plane = same ? NULL : wb__alloc((size_t)n * sizeof *plane);
    int status = same || plane ? 0 : WB_ERROR_MEMORY;
    for (int64_t c = 0; !status && c < dims[0]; c++) {
        float *to = same ? x + c * m : plane;
        for (int64_t i = 0; i < n; i++) to[i] = (float)planes[c * n + i] / 255;
        if (!same) status = wb__image_resize(plane, dims[1], dims[2], x + c * m, f->dims[1],
                                             f->dims[2]);
    }
    wb__free(plane);
    return status;
}

static int image_folder_get(int64_t i, void *x, void *y, void *ctx)
{
    const image_folder *f = ctx;
    const char *path = f->files.text[i];
    int64_t dims[3];
    uint8_t *planes;
    int status = wb__image_load("load_images", path, (int)f->dims[0], f->exif, dims, &planes);
    if (!status) status = image_folder_write_image(f, path, planes, dims, x);
    wb__free(planes);
    *(int32_t *)y = f->label[i];
    return status;
}

/* Sets f->dims, the shape of the observations: .height and .width, or else those of the first
 * image. */
static int image_folder_measure(image_folder *f, const wb_load_images_options *o)
{
    uint8_t *planes;
    f->resize = o->height > 0;
    f->exif = o->exif;
    const int64_t wanted[3] = {o->channels, o->height, o->width};
    if (f->resize) memcpy(f->dims, wanted, sizeof wanted);
    if (f->resize) return 0;
    const int status = wb__image_load("load_images", f->files.text[0], o->channels, o->exif,
                                      f->dims, &planes);
    wb__free(planes);
    return status;
}

wb_dataset *wb_load_images_with(const char *path, const wb_load_images_options *given)
{
    wb_load_images_options o;
    if (WB__NULL(path) ||
        !wb__read_options("load_images", wb_load_images_options, &o, given, NULL))
        return NULL;
    if (o.channels < 1 || o.channels > 4 || o.height < 0 || o.width < 0 ||
        !o.height != !o.width || (o.width && o.height > WB__IMAGE_MOST / 4 / o.width))
        return wb__fail_null(WB_ERROR_ARGUMENT, "load_images: %d channels, %lld x %lld pixels; "
                             "there are 1 to 4 channels, and .height and .width, or none of both",
                             o.channels, (long long)o.height, (long long)o.width);
    image_folder *f = wb__alloc_zero(1, sizeof *f);
    if (!f) return NULL;
    wb_dataset *d = NULL;
    if (!image_folder_find_all(path, f) && !image_folder_measure(f, &o)) {
        wb_dataset_source s = {.size = sizeof s, .n = f->files.n, .x_ndim = 3, .y_dtype = WB_I32,
                               .get = image_folder_get, .ctx = f};
        memcpy(s.x_dims, f->dims, sizeof f->dims);
        d = wb_dataset_from(&s);
    }
    if (d) d->free_ctx = image_folder_free;
    else image_folder_free(f);
    return d;
}

const char *const *wb_image_classes(const wb_dataset *d, int64_t *n)
{
    if (n) *n = 0;
    if (!wb__is_dataset(d, "image_classes")) return NULL;
    const wb_dataset *root = wb__dataset_root(d);
    if (root->free_ctx != image_folder_free)
        return wb__fail_null(WB_ERROR_ARGUMENT,
                             "image_classes: the dataset was not made by wb_load_images");
    const image_folder *f = root->ctx;
    if (n) *n = f->classes.n;
    return (const char *const *)f->classes.text;
}
