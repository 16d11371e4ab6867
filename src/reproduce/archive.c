#include "reproduce/archive.h"

#include "base/err.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".json"

static int path_of(const struct archive_key *key, const char *suffix, char path[PATH_MAX])
{
    int len = snprintf(path, PATH_MAX, "%s/%s/%s%s", key->dir, key->experiment, key->cell, suffix);
    return len < PATH_MAX ? FAR_OK : err_fail(FAR_SYSTEM, "the name of the directory is too long");
}

static int cannot(const char *what, const char *path)
{
    return err_fail(FAR_SYSTEM, "cannot %s '%.160s': %s", what, path, strerror(errno));
}

bool archive_has(const char *dir, const char *experiment)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", dir, experiment) >= PATH_MAX)
        return false;
    DIR *open = opendir(path);
    bool found = false;
    struct dirent *entry = NULL;
    while (open && !found && (entry = readdir(open)) != NULL) {
        size_t len = strlen(entry->d_name), end = strlen(SUFFIX);
        found = len > end && strcmp(entry->d_name + len - end, SUFFIX) == 0;
    }
    if (open)
        closedir(open);
    return found;
}

int archive_make(const char *dir, const char *experiment)
{
    char path[PATH_MAX];
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return cannot("make the directory", dir);
    if (snprintf(path, sizeof path, "%s/%s", dir, experiment) >= PATH_MAX)
        return err_fail(FAR_SYSTEM, "the name of the directory is too long");
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return cannot("make the directory", path);
    return FAR_OK;
}

enum archive_state archive_load(const struct archive_key *key, json_t **runs)
{
    char path[PATH_MAX];
    if (path_of(key, SUFFIX, path) != FAR_OK || access(path, F_OK) != 0)
        return ARCHIVE_NONE;
    json_t *file = json_load_file(path, 0, NULL);
    const char *version = json_string_value(json_object_get(file, "farside"));
    json_t *kept = json_object_get(file, "runs");
    bool fits = version && strcmp(version, far_version()) == 0 && json_is_array(kept) &&
                json_equal(json_object_get(file, "configuration"), key->configuration);
    if (fits)
        *runs = json_incref(kept);
    json_decref(file);
    return fits ? ARCHIVE_FOUND : ARCHIVE_OTHER;
}

/* Writes the object to the file, down to the disk. */
static int write_file(const char *path, const json_t *object)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return cannot("create", path);
    bool good = json_dumpf(object, file, JSON_INDENT(2)) == 0 && fputs("\n", file) >= 0 &&
                fflush(file) == 0 && fsync(fileno(file)) == 0;
    int rc = good ? FAR_OK : cannot("write", path);
    if (fclose(file) != 0 && rc == FAR_OK)
        rc = cannot("write", path);
    return rc;
}

int archive_save(const struct archive_key *key, json_t *runs)
{
    char path[PATH_MAX], part[PATH_MAX];
    int rc = path_of(key, SUFFIX, path);
    if (rc == FAR_OK)
        rc = path_of(key, SUFFIX ".part", part);
    if (rc != FAR_OK)
        return rc;
    json_t *object = json_pack("{s:s, s:s, s:s, s:O, s:O}", "farside", far_version(), "experiment",
                               key->experiment, "cell", key->cell, "configuration",
                               key->configuration, "runs", runs);
    if (!object)
        return err_fail(FAR_NO_MEMORY, "no memory for a result");
    rc = write_file(part, object);
    if (rc == FAR_OK && rename(part, path) != 0)
        rc = cannot("rename to", path);
    if (rc != FAR_OK)
        unlink(part);
    json_decref(object);
    return rc;
}
