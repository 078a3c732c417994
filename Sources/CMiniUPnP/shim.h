// The part of libminiupnpc that is used here, without its tables of characters, which Swift would see as tuples of 128.
#include <stdio.h>
#include <string.h>
#include <miniupnpc/miniupnpc.h>
#include <miniupnpc/upnpcommands.h>
#include <miniupnpc/upnperrors.h>

// A gateway's service that makes port mappings.
struct igd_service {
    char control[512];
    char type[MINIUPNPC_URL_MAXSIZE];
};

// Whether `http://HOST:PORT/…` is of this host.
static inline int igd_url_is_of(const char *url, const char *host) {
    static const char scheme[] = "http://";
    size_t length = strlen(host);
    if (url == NULL || strncmp(url, scheme, sizeof scheme - 1) != 0) return 0;
    url += sizeof scheme - 1;
    return strncmp(url, host, length) == 0 && (url[length] == ':' || url[length] == '/');
}

// Looks for the service at one host by multicast on the network of `local`; others that answer are not asked anything.
// 0 if it is there, -1 if the host does not answer, -2 if it has no such service.
static inline int igd_find(const char *host, const char *local, int milliseconds, struct igd_service *service) {
    int error = 0, result = -1;
    struct UPNPDev *devices = upnpDiscover(milliseconds, local, NULL, UPNP_LOCAL_PORT_ANY, 0, 1, &error);
    for (struct UPNPDev *device = devices; device != NULL && result != 0; device = device->pNext) {
        struct UPNPUrls urls;
        struct IGDdatas data;
        char own[64];
        if (!igd_url_is_of(device->descURL, host)) continue;
        result = -2;
        memset(&urls, 0, sizeof urls);
        memset(&data, 0, sizeof data);
        if (UPNP_GetIGDFromUrl(device->descURL, &urls, &data, own, sizeof own) != 1) continue;
        if (igd_url_is_of(urls.controlURL, host) && strlen(urls.controlURL) < sizeof service->control
            && (strstr(data.first.servicetype, ":service:WANIPConnection:") != NULL
                || strstr(data.first.servicetype, ":service:WANPPPConnection:") != NULL)) {
            strcpy(service->control, urls.controlURL);
            memcpy(service->type, data.first.servicetype, sizeof service->type);
            service->type[sizeof service->type - 1] = 0;
            result = 0;
        }
        FreeUPNPUrls(&urls);
    }
    freeUPNPDevlist(devices);
    return result;
}

// The outer address, at least 16 bytes with their end. 0, or the library's or the gateway's code.
static inline int igd_outer_address(const struct igd_service *service, char *address) {
    return UPNP_GetExternalIPAddress(service->control, service->type, address);
}

static inline int igd_add(const struct igd_service *service, unsigned outer, unsigned inner, const char *client,
                          const char *carrier, unsigned seconds) {
    char outerText[12], innerText[12], lease[12];
    snprintf(outerText, sizeof outerText, "%u", outer);
    snprintf(innerText, sizeof innerText, "%u", inner);
    snprintf(lease, sizeof lease, "%u", seconds);
    return UPNP_AddPortMapping(service->control, service->type, outerText, innerText, client, "mayfly", carrier, NULL, lease);
}

static inline int igd_remove(const struct igd_service *service, unsigned outer, const char *carrier) {
    char outerText[12];
    snprintf(outerText, sizeof outerText, "%u", outer);
    return UPNP_DeletePortMapping(service->control, service->type, outerText, carrier, NULL);
}

// What the gateway has under an outer port: where it leads, and for how many seconds more, 0 for ever.
static inline int igd_entry(const struct igd_service *service, unsigned outer, const char *carrier, char client[64],
                            unsigned *inner, unsigned *seconds) {
    char outerText[12], innerText[16] = "", description[96] = "", enabled[16] = "", lease[32] = "";
    snprintf(outerText, sizeof outerText, "%u", outer);
    client[0] = 0;
    int result = UPNP_GetSpecificPortMappingEntry(service->control, service->type, outerText, carrier, NULL, client,
                                                  innerText, description, enabled, lease);
    if (result != 0) return result;
    if (sscanf(innerText, "%5u", inner) != 1) *inner = 0;
    if (sscanf(lease, "%9u", seconds) != 1) *seconds = 0;
    return 0;
}
