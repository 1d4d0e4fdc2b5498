// The shim is the client library under the vendor's name. Nothing happens when it is loaded: on or
// off is decided from the environment at the first call that asks for a device.
