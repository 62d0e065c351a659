#!/usr/bin/env python3
"""A foreign client: what grpcio, which shares no code with the suite, sees of a running home-api.

Needs no generated stubs: every message type comes from the server's own reflection.

    python3 tests/python/client.py --target 127.0.0.1:8080

Prints each check as it holds. Exit status: 0 all held, 1 one did not, 2 wrong usage.
"""

import argparse
import sys

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

HOME = "mercury.home.v2.HomeService"
REFLECTION = ("grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection")
HEALTH = "grpc.health.v1.Health"
IDENTITY = (
    ("x-mercury-tenant", "tenant-007"),
    ("x-mercury-subject", "user-00042"),
    ("x-mercury-class", "premium"),
    ("x-mercury-region", "eu-west"),
)
CORE_SECTIONS = ("profile", "entitlement", "inventory", "pricing")
# Far above any answer; a call that takes this long has hung.
TIMEOUT_S = 10


def require(holds, what):
    """Prints a check that holds; ends the run on one that does not."""
    if not holds:
        raise AssertionError(what)
    print(f"ok  {what}", flush=True)


def failure(call):
    """The error of a call that must fail."""
    try:
        answer = call()
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"expected a failure, got {answer!r}")


def check_health(channel):
    stub = health_pb2_grpc.HealthStub(channel)
    serving = health_pb2.HealthCheckResponse.SERVING
    for service in ("", HOME):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
        require(answer.status == serving, f"health Check({service!r}) is SERVING")

    unknown = health_pb2.HealthCheckRequest(service="mercury.absent.v1.AbsentService")
    error = failure(lambda: stub.Check(unknown, timeout=TIMEOUT_S))
    require(error.code() == grpc.StatusCode.NOT_FOUND, "health Check of an unknown service is NOT_FOUND")

    # A Watch answers at once and stays open; for an unknown service it says so and stays open too.
    for service, expected in (("", serving), (unknown.service, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)):
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
        first = next(watch)
        name = health_pb2.HealthCheckResponse.ServingStatus.Name(expected)
        require(first.status == expected, f"health Watch({service!r}) begins with {name}")
        require(watch.is_active(), f"health Watch({service!r}) stays open")
        watch.cancel()


def listed_services(channel, reflection):
    """Services by one version of reflection. v1 and v1alpha are the same messages under two names."""
    method = channel.stream_stream(
        f"/{reflection}/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="no.such.Symbol"),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=HOME),
    ]
    listing, unknown, known = list(method(iter(requests), timeout=TIMEOUT_S))
    require(
        unknown.HasField("error_response") and unknown.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0],
        f"{reflection} answers an unknown symbol with NOT_FOUND inside the stream",
    )
    require(
        len(known.file_descriptor_response.file_descriptor_proto) > 0,
        f"{reflection} still answers on the same stream, and describes {HOME}",
    )
    return sorted(service.name for service in listing.list_services_response.service)


def check_reflection(channel):
    """Lists by both versions, calls what is listed, and returns the pool of types that reflection describes."""
    by_version = {reflection: listed_services(channel, reflection) for reflection in REFLECTION}
    services = by_version[REFLECTION[0]]
    require(services == by_version[REFLECTION[1]], f"both versions of reflection list the same: {', '.join(services)}")
    require({HOME, HEALTH, *REFLECTION} <= set(services), "the list has home, health and reflection itself")

    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    for name in services:
        try:
            descriptor = pool.FindServiceByName(name)
        except KeyError:
            raise AssertionError(f"{name} is listed, but reflection does not describe it") from None
        for method in descriptor.methods:
            check_callable(channel, method)
    return pool


def check_callable(channel, method):
    """What reflection lists can be called: anything but UNIMPLEMENTED is an answer of the service itself."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.client_streaming or method.server_streaming:
            call = channel.stream_stream(path)(iter([b""]), timeout=TIMEOUT_S)
            next(call, None)  # the first answer or the end tells; a Watch would stay open
            call.cancel()
        else:
            channel.unary_unary(path)(b"", timeout=TIMEOUT_S)
        code = grpc.StatusCode.OK
    except grpc.RpcError as error:
        code = error.code()
    require(code != grpc.StatusCode.UNIMPLEMENTED, f"{path} can be called ({code.name} for an empty message)")


def check_home(channel, pool):
    method = pool.FindServiceByName(HOME).FindMethodByName("GetHome")
    request_type = message_factory.GetMessageClass(method.input_type)
    response_type = message_factory.GetMessageClass(method.output_type)
    get_home = channel.unary_unary(
        f"/{HOME}/GetHome",
        request_serializer=request_type.SerializeToString,
        response_deserializer=response_type.FromString,
    )

    metadata = (*IDENTITY, ("x-request-id", "python-client-1"))
    home, call = get_home.with_call(request_type(), metadata=metadata, timeout=TIMEOUT_S)
    require(call.code() == grpc.StatusCode.OK, "GetHome is OK")
    require(home.core_complete, "the page is core_complete")
    for section in CORE_SECTIONS:
        require(home.HasField(section), f"the page has its {section}")
    require(home.profile.tenant == "tenant-007" and home.profile.subject == "user-00042", "it is the caller's own page")
    require(home.entitlement.authority == "call", "the entitlement came from the call")
    claims = list(home.entitlement.claims)
    require(claims == sorted(set(claims)), "claims are sorted and unique")
    require(len(home.experiments) > 0, "experiment arms are allocated")
    require(home.request_id == "python-client-1", "the request id is the one that was sent")
    markers = json_format.MessageToDict(home, preserving_proto_field_name=True)["optional"]
    for section in ("recommendations", "reputation"):
        marker = markers.get(section, "MARKER_UNSPECIFIED")
        require(marker != "MARKER_UNSPECIFIED", f"the marker of {section} is {marker}")
        require(home.HasField(section) == (marker == "MARKER_PRESENT"), f"{section} is there exactly when present")

    again = get_home(request_type(), metadata=metadata, timeout=TIMEOUT_S)
    arms = [(arm.experiment_id, arm.variant, arm.event_id) for arm in home.experiments]
    require(
        arms == [(arm.experiment_id, arm.variant, arm.event_id) for arm in again.experiments],
        "the same operation again has the same arms and the same exposure ids",
    )

    error = failure(lambda: get_home(request_type(), metadata=metadata, timeout=0.001))
    require(error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, "a deadline of 1 ms is DEADLINE_EXCEEDED")

    for missing, _ in IDENTITY:
        rest = [pair for pair in IDENTITY if pair[0] != missing]
        error = failure(lambda: get_home(request_type(), metadata=rest, timeout=TIMEOUT_S))
        named = error.code() == grpc.StatusCode.UNAUTHENTICATED and missing in error.details()
        require(named, f"without {missing} it is UNAUTHENTICATED, and the message names the header")

    wrong = [pair if pair[0] != "x-mercury-class" else (pair[0], "platinum") for pair in IDENTITY]
    error = failure(lambda: get_home(request_type(), metadata=wrong, timeout=TIMEOUT_S))
    require(error.code() == grpc.StatusCode.INVALID_ARGUMENT, "an unknown class is INVALID_ARGUMENT")

    error = failure(lambda: channel.unary_unary(f"/{HOME}/GetPage")(b"", metadata=IDENTITY, timeout=TIMEOUT_S))
    require(error.code() == grpc.StatusCode.UNIMPLEMENTED, "an unknown method is UNIMPLEMENTED")


def main():
    parser = argparse.ArgumentParser(description="Checks a running home-api as a foreign gRPC client.")
    parser.add_argument("--target", required=True, metavar="HOST:PORT", help="home-api's published port")
    target = parser.parse_args().target
    try:
        with grpc.insecure_channel(target) as channel:
            grpc.channel_ready_future(channel).result(timeout=TIMEOUT_S)
            check_health(channel)
            pool = check_reflection(channel)
            check_home(channel, pool)
    except AssertionError as error:
        print(f"FAILED  {error}", file=sys.stderr)
        return 1
    except grpc.FutureTimeoutError:
        print(f"FAILED  no connection to {target} within {TIMEOUT_S} s", file=sys.stderr)
        return 1
    except grpc.RpcError as error:
        print(f"FAILED  a call that must succeed: {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    print(f"all checks held against {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
