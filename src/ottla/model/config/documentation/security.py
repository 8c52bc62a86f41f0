"""Descriptions of broker configs of TLS, SASL, delegation tokens and authorization."""

TEXT = """
authorizer.class.name
    The name of Kafka's authorizer class. If it is empty, all clients may do everything.
connection.failed.authentication.delay.ms
    How long a connection stays open after a failed authentication, to slow down guessing.
connections.max.reauth.ms
    How long a SASL session lasts before the client must authenticate again; 0 means forever (KIP-368).
delegation.token.expiry.check.interval.ms
    How often expired delegation tokens are removed.
delegation.token.expiry.time.ms
    How long a delegation token is valid before it must be renewed.
delegation.token.max.lifetime.ms
    The maximum lifetime of a delegation token, including renewals.
delegation.token.secret.key
    The secret key of delegation tokens; the same on every node.
principal.builder.class
    In Kafka, the Java class that determines the user of a connection. Ottla loads no Java classes.
sasl.client.callback.handler.class
    In Kafka, a Java class for the client side of SASL. Ottla loads no Java classes.
sasl.enabled.mechanisms
    The SASL mechanisms that are offered.
sasl.jaas.config
    Credentials for SASL, in the form of JAAS; set per listener and mechanism.
sasl.kerberos.kinit.cmd
    The path of Kerberos' kinit.
sasl.kerberos.min.time.before.relogin
    The minimum time between two refreshes of the Kerberos ticket.
sasl.kerberos.principal.to.local.rules
    Rules that map Kerberos principals to short names; the first match counts.
sasl.kerberos.service.name
    The Kerberos principal that the broker runs as.
sasl.kerberos.ticket.renew.jitter
    The share of the renewal time of a Kerberos ticket that is random.
sasl.kerberos.ticket.renew.window.factor
    The share of its lifetime after which a Kerberos ticket is renewed.
sasl.login.callback.handler.class
    In Kafka, a Java class for SASL logins. Ottla loads no Java classes.
sasl.login.class
    In Kafka, a Java class for SASL logins. Ottla loads no Java classes.
sasl.login.connect.timeout.ms
    The timeout for connecting to the identity provider (OAUTHBEARER).
sasl.login.read.timeout.ms
    The timeout for reading from the identity provider (OAUTHBEARER).
sasl.login.refresh.buffer.seconds
    How long before its expiry a credential is refreshed at the latest (OAUTHBEARER).
sasl.login.refresh.min.period.seconds
    The minimum time between two refreshes of a credential (OAUTHBEARER).
sasl.login.refresh.window.factor
    The share of its lifetime after which a credential is refreshed (OAUTHBEARER).
sasl.login.refresh.window.jitter
    The share of that time that is random (OAUTHBEARER).
sasl.login.retry.backoff.max.ms
    The maximum time between two attempts to connect to the identity provider (OAUTHBEARER).
sasl.login.retry.backoff.ms
    The time between the first two attempts to connect to the identity provider (OAUTHBEARER).
sasl.mechanism.controller.protocol
    The SASL mechanism for connections to controllers.
sasl.mechanism.inter.broker.protocol
    The SASL mechanism between brokers.
sasl.oauthbearer.assertion.algorithm
    The algorithm that signs assertions for the identity provider.
sasl.oauthbearer.assertion.claim.aud
    The audience claim of such assertions.
sasl.oauthbearer.assertion.claim.exp.seconds
    How long such an assertion is valid.
sasl.oauthbearer.assertion.claim.iss
    The issuer claim of such assertions.
sasl.oauthbearer.assertion.claim.jti.include
    Whether such an assertion has an id.
sasl.oauthbearer.assertion.claim.nbf.seconds
    How long before its creation such an assertion is already valid, to allow for clocks that differ.
sasl.oauthbearer.assertion.claim.sub
    The subject claim of such assertions.
sasl.oauthbearer.assertion.file
    A file with a ready-made assertion, read again when it changes.
sasl.oauthbearer.assertion.private.key.file
    The file of the private key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase
    The passphrase of that key.
sasl.oauthbearer.assertion.template.file
    A file with fixed headers and claims for assertions.
sasl.oauthbearer.client.credentials.client.id
    The client id of the client credentials grant.
sasl.oauthbearer.client.credentials.client.secret
    The client secret of the client credentials grant.
sasl.oauthbearer.clock.skew.seconds
    How far the clocks of broker and identity provider may differ.
sasl.oauthbearer.expected.audience
    The allowed audiences of a token.
sasl.oauthbearer.expected.issuer
    The required issuer of a token.
sasl.oauthbearer.jwks.endpoint.refresh.ms
    How often the identity provider's keys are fetched again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    The maximum time between two attempts to fetch these keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    The time between the first two attempts to fetch these keys.
sasl.oauthbearer.jwks.endpoint.url
    The URL of these keys.
sasl.oauthbearer.jwt.retriever.class
    In Kafka, the Java class that requests tokens. Ottla loads no Java classes.
sasl.oauthbearer.jwt.validator.class
    In Kafka, the Java class that checks tokens. Ottla loads no Java classes.
sasl.oauthbearer.scope
    The scope of requested tokens.
sasl.oauthbearer.scope.claim.name
    The claim of a token that contains its scope.
sasl.oauthbearer.sub.claim.name
    The claim of a token that contains the user.
sasl.oauthbearer.token.endpoint.url
    The URL from which tokens are requested.
sasl.server.callback.handler.class
    In Kafka, a Java class for the server side of SASL. Ottla loads no Java classes.
sasl.server.max.receive.size
    The largest SASL message that is accepted before a client is authenticated.
security.inter.broker.protocol
    The security protocol between brokers if inter.broker.listener.name is not set.
security.providers
    In Kafka, Java classes with security algorithms. Ottla loads no Java classes.
ssl.allow.dn.changes
    Whether a certificate that is replaced while the broker runs may have another distinguished name.
ssl.allow.san.changes
    Whether a certificate that is replaced while the broker runs may have other alternative names.
ssl.cipher.suites
    The cipher suites that are offered. If it is empty, those of the TLS library.
ssl.client.auth
    Whether clients need a certificate: required, requested or none.
ssl.enabled.protocols
    The versions of TLS that are accepted.
ssl.endpoint.identification.algorithm
    How the host name of a server is verified against its certificate; empty disables the check.
ssl.engine.factory.class
    In Kafka, a Java class that creates TLS engines. Ottla loads no Java classes.
ssl.key.password
    The password of the private key.
ssl.keymanager.algorithm
    The algorithm of Java's key manager.
ssl.keystore.certificate.chain
    The certificate chain, in PEM, in the config itself.
ssl.keystore.key
    The private key, in PEM, in the config itself.
ssl.keystore.location
    The file with the broker's key and certificate.
ssl.keystore.password
    The password of that file.
ssl.keystore.type
    The format of that file: JKS, PKCS12 or PEM.
ssl.principal.mapping.rules
    Rules that map the distinguished name of a client's certificate to a user name.
ssl.protocol
    The version of TLS for new connections.
ssl.provider
    The security provider of Java's TLS.
ssl.secure.random.implementation
    The random generator of Java's TLS.
ssl.trustmanager.algorithm
    The algorithm of Java's trust manager.
ssl.truststore.certificates
    The certificates to trust, in PEM, in the config itself.
ssl.truststore.location
    The file with the certificates to trust.
ssl.truststore.password
    The password of that file.
ssl.truststore.type
    The format of that file: JKS, PKCS12 or PEM.
"""
