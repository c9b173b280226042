export { createProxy, createRouteHandlers, type ProxyOptions } from './proxy.js';
