"""Texts for broker configs of TLS, SASL, delegation tokens and authorization."""

TEXT = """
authorizer.class.name
    The authorizer, by the name of Kafka's class. Empty lets everybody do everything.
connection.failed.authentication.delay.ms
    How long a connection stays open after a failed authentication, to slow down guessing.
connections.max.reauth.ms
    How long a SASL session lasts before the client must authenticate again; 0 for ever (KIP-368).
delegation.token.expiry.check.interval.ms
    How often expired delegation tokens are removed.
delegation.token.expiry.time.ms
    How long a delegation token is valid before it must be renewed.
delegation.token.max.lifetime.ms
    How long a delegation token lives at most, however often it is renewed.
delegation.token.secret.key
    The secret that delegation tokens are made with; the same on every node.
principal.builder.class
    The Java class that names the user behind a connection in Kafka. Ottla loads no Java classes.
sasl.client.callback.handler.class
    A Java class for the client's side of SASL in Kafka. Ottla loads no Java classes.
sasl.enabled.mechanisms
    The SASL mechanisms that are offered.
sasl.jaas.config
    Credentials for SASL, in the form of JAAS; set per listener and mechanism.
sasl.kerberos.kinit.cmd
    Where Kerberos' kinit is.
sasl.kerberos.min.time.before.relogin
    The least time between two refreshes of the Kerberos ticket.
sasl.kerberos.principal.to.local.rules
    Rules that turn Kerberos principals into short names; the first that matches counts.
sasl.kerberos.service.name
    The Kerberos principal that the broker runs as.
sasl.kerberos.ticket.renew.jitter
    What share of the renewal time of a Kerberos ticket is random.
sasl.kerberos.ticket.renew.window.factor
    After what share of a Kerberos ticket's life it is renewed.
sasl.login.callback.handler.class
    A Java class for SASL logins in Kafka. Ottla loads no Java classes.
sasl.login.class
    A Java class for SASL logins in Kafka. Ottla loads no Java classes.
sasl.login.connect.timeout.ms
    How long connecting to the identity provider may take (OAUTHBEARER).
sasl.login.read.timeout.ms
    How long the identity provider's answer may take (OAUTHBEARER).
sasl.login.refresh.buffer.seconds
    How long before its end a credential is refreshed at the latest (OAUTHBEARER).
sasl.login.refresh.min.period.seconds
    The least time between two refreshes of a credential (OAUTHBEARER).
sasl.login.refresh.window.factor
    After what share of its life a credential is refreshed (OAUTHBEARER).
sasl.login.refresh.window.jitter
    What share of that time is random (OAUTHBEARER).
sasl.login.retry.backoff.max.ms
    The longest wait between attempts to reach the identity provider (OAUTHBEARER).
sasl.login.retry.backoff.ms
    The first wait between attempts to reach the identity provider (OAUTHBEARER).
sasl.mechanism.controller.protocol
    The SASL mechanism towards controllers.
sasl.mechanism.inter.broker.protocol
    The SASL mechanism between brokers.
sasl.oauthbearer.assertion.algorithm
    The algorithm that signs assertions for the identity provider.
sasl.oauthbearer.assertion.claim.aud
    The audience claim of such assertions.
sasl.oauthbearer.assertion.claim.exp.seconds
    For how long such an assertion is valid.
sasl.oauthbearer.assertion.claim.iss
    The issuer claim of such assertions.
sasl.oauthbearer.assertion.claim.jti.include
    Whether such an assertion carries an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds
    From how long before now such an assertion is valid, to allow for clocks that differ.
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
    Which audiences a token may be for.
sasl.oauthbearer.expected.issuer
    Which issuer a token must come from.
sasl.oauthbearer.jwks.endpoint.refresh.ms
    How often the identity provider's keys are fetched again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    The longest wait between attempts to fetch these keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    The first wait between attempts to fetch these keys.
sasl.oauthbearer.jwks.endpoint.url
    Where these keys are.
sasl.oauthbearer.jwt.retriever.class
    The Java class that gets tokens in Kafka. Ottla loads no Java classes.
sasl.oauthbearer.jwt.validator.class
    The Java class that checks tokens in Kafka. Ottla loads no Java classes.
sasl.oauthbearer.scope
    The scope that a token is asked for.
sasl.oauthbearer.scope.claim.name
    The claim of a token that holds its scope.
sasl.oauthbearer.sub.claim.name
    The claim of a token that names the user.
sasl.oauthbearer.token.endpoint.url
    Where tokens are asked for.
sasl.server.callback.handler.class
    A Java class for the server's side of SASL in Kafka. Ottla loads no Java classes.
sasl.server.max.receive.size
    The largest SASL message that is accepted before a client is authenticated.
security.inter.broker.protocol
    The security protocol between brokers, where inter.broker.listener.name is not set.
security.providers
    Java classes with security algorithms in Kafka. Ottla loads no Java classes.
ssl.allow.dn.changes
    Whether a certificate that is replaced while the broker runs may have another distinguished name.
ssl.allow.san.changes
    Whether a certificate that is replaced while the broker runs may have other alternative names.
ssl.cipher.suites
    The cipher suites that are offered. Empty: those of the TLS library.
ssl.client.auth
    Whether clients need a certificate: required, requested or none.
ssl.enabled.protocols
    The versions of TLS that are accepted.
ssl.endpoint.identification.algorithm
    How a server's name is checked against its certificate; empty does not check.
ssl.engine.factory.class
    A Java class that makes TLS engines in Kafka. Ottla loads no Java classes.
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
    Rules that turn the distinguished name of a client's certificate into a user name.
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
